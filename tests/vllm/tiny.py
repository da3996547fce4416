"""A real vLLM engine in a process of its own: a tiny model with random weights.

    run(code)    a program with this module's `engine` and `serve`, and its JSON answer

Nothing is downloaded, and one engine takes two seconds after vLLM's import of nine.
"""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

BLOCK = 32  # tokens: the least that vLLM's CPU attention takes
ROOT = Path(__file__).parents[2]
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_PLUGINS": "",  # what a test wants of perc, it says
    "PYTHONHASHSEED": "0",  # the same block hashes in every engine
    "JAX_PLATFORMS": "cpu",
}


def run(code, **environment):
    """The last line that a program printed, as JSON, and all that it said.

    The program may import this module.
    """
    cleared = {k: v for k, v in os.environ.items() if not k.startswith("PERC_")}
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**cleared, **ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert told.returncode == 0, told.stderr[-4000:]
    *said, answer = told.stdout.splitlines()
    return json.loads(answer), "\n".join(said) + told.stderr


def engine(blocks=24, **options):
    """An engine with so many blocks, the null block among them."""
    from vllm.entrypoints.llm import LLM

    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(MODEL))
    chosen = {
        "model": str(folder),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "seed": 0,
        "block_size": BLOCK,
        "num_gpu_blocks_override": blocks,
        "max_model_len": 16 * BLOCK,
        "max_num_seqs": 4,
        "distributed_executor_backend": "uni",
        "disable_log_stats": False,
    }
    return LLM(**{**chosen, **options})


def serve(llm, prompts, hints=None, *, at_once=1, tokens=4):
    """Outputs, cached tokens and victims, `at_once` requests together."""
    from vllm.sampling_params import SamplingParams

    victims = _recorded(llm)
    params = [
        SamplingParams(
            max_tokens=tokens,
            temperature=0.0,
            detokenize=False,
            ignore_eos=True,
            extra_args=hint,
        )
        for hint in (hints or [None] * len(prompts))
    ]
    given = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    outputs, hits = [], []
    for i in range(0, len(given), at_once):
        part = slice(i, i + at_once)
        for answer in llm.generate(given[part], params[part], use_tqdm=False):
            outputs.append(list(answer.outputs[0].token_ids))
            hits.append(answer.num_cached_tokens)
    return {"outputs": outputs, "hits": hits, "victims": victims}


def scheduler_of(llm):
    """The scheduler of an engine in this process."""
    return llm.llm_engine.engine_core.engine_core.scheduler


def _recorded(llm):
    """Hashes of the blocks that leave from now on, in order."""
    pool, victims = scheduler_of(llm).kv_cache_manager.block_pool, []
    evict = type(pool)._maybe_evict_cached_block.__get__(pool)

    def recorded(block):
        if block.block_hash is not None:
            victims.append(block.block_hash.hex())
        return evict(block)

    pool._maybe_evict_cached_block = recorded
    return victims


def close(llm):
    """Frees an engine, so that the next one can start in this process."""
    import gc

    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()


@contextmanager
def environment(**given):
    """Variables of the environment, for a while."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def plugged(policy):
    """The plug-in with a policy, for a while."""
    from vllm.v1.core import block_pool
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    from perc.bridges import vllm_plugin

    queue, names = "FreeKVCacheBlockQueue", ("free", "pop_blocks_for_free")
    before = getattr(block_pool, queue)
    methods = {name: getattr(KVCacheManager, name) for name in names}
    with environment(PERC_POLICY=policy, PERC_CLOCK="requests"):
        vllm_plugin.register()
        assert getattr(block_pool, queue) is not before
        try:
            yield
        finally:
            vllm_plugin._installed = False
            setattr(block_pool, queue, before)
            for name, method in methods.items():
                setattr(KVCacheManager, name, method)


def connector(policy=None, **more):
    """The configuration of perc's connector."""
    extra = {} if policy is None else {"perc_policy": policy, "perc_clock": "requests"}
    return {
        "kv_connector": "PercConnector",
        "kv_connector_module_path": "perc.bridges.vllm_connector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {**extra, **more},
    }


def both(*members):
    """The configuration of `MultiConnector` with these members."""
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"connectors": list(members)},
    }


def traffic(seed=0, n=40):
    """Prompts of sessions that grow and of one-shots, and what their clients say."""
    import numpy as np

    rng = np.random.default_rng(seed)
    sessions = [list(rng.integers(3, 1024, 2 * BLOCK)) for _ in range(3)]
    prompts, hints = [], []
    for i in range(n):
        if i % 2:
            prompt = rng.integers(3, 1024, 5 * BLOCK + 7)
            hints.append({"perc_priority": 1})
        else:
            session = sessions[i // 2 % 3]
            if len(session) < 7 * BLOCK:
                session.extend(rng.integers(3, 1024, BLOCK))
            prompt = [*session, *rng.integers(3, 1024, 5)]
            hints.append({"perc_priority": 5, "perc_session": i // 2 % 3})
        prompts.append([int(token) for token in prompt])
    return prompts, hints
