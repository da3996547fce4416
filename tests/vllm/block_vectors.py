"""Block hashes as the installed vLLM computes them.

    python -m tests.vllm.block_vectors > tests/data/vllm_block_hashes.json

Run it where vLLM is, with `xxhash` for all four algorithms.
"""

import json
import os
import sys
from itertools import product

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
SEEDS = (None, "0", "häuser")
PROMPTS = {
    "short": [1, 2, 3],
    "small": list(range(40)),
    "wide": [0, 23, 24, 255, 256, 65535, 65536, 151_935, 2**31 - 1] * 5,
    "shared": [*range(16), *[7] * 20],
}
KEYS = {
    "none": {},
    "salt": {"cache_salt": "tenant-7"},
    "lora": {"lora": ["sql", "/adapters/sql"]},
    "both": {"cache_salt": "grün", "lora": ["sql", "/adapters/sql"]},
}
WITH_BLOCKS_OF_ONE = {("short", "none"), ("wide", "both")}


def vectors():
    """One case for each algorithm, seed, size, prompt and keys."""
    from vllm.utils import hashing
    from vllm.v1.core import kv_cache_utils as utils

    found = []
    for algorithm, seed in product(ALGORITHMS, SEEDS):
        if algorithm.startswith("xxhash") and (seed is None or not hashing._xxhash):
            continue
        function = hashing.get_hash_fn_by_name(algorithm)
        os.environ.pop("PYTHONHASHSEED", None)
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed
        utils.init_none_hash(function)
        for size, prompt, keys in product((1, 16), PROMPTS, KEYS):
            if size == 1 and (prompt, keys) not in WITH_BLOCKS_OF_ONE:
                continue
            hashes = _hashes(utils, function, size, PROMPTS[prompt], KEYS[keys])
            found.append(
                {
                    "algorithm": algorithm,
                    "seed": seed,
                    "block_tokens": size,
                    "prompt": prompt,
                    "keys": keys,
                    "hashes": [value.hex() for value in hashes],
                    "ints": [utils.maybe_convert_block_hash(v) for v in hashes],
                }
            )
    return found


def _hashes(utils, function, size, tokens, keys):
    """Through a real request, so that vLLM itself gathers the extra keys."""
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    lora = keys.get("lora")
    request = Request(
        request_id="0",
        prompt_token_ids=list(tokens),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        cache_salt=keys.get("cache_salt"),
        lora_request=LoRARequest(lora[0], 1, lora[1]) if lora else None,
        block_hasher=utils.get_request_block_hasher(size, function),
    )
    return request.block_hashes


if __name__ == "__main__":
    import vllm

    about = {"vllm": vllm.__version__, "prompts": PROMPTS, "keys": KEYS}
    json.dump({**about, "cases": vectors()}, sys.stdout)
