"""perc's block hashes beside those of the vLLM that is installed, and its KV events."""

import json
from pathlib import Path

import pytest

from perc.block_hashes import BlockHasher, as_int
from perc.errors import InputError
from tests.vllm.block_vectors import KEYS, PROMPTS, vectors

DATA = Path(__file__).parents[1] / "data" / "vllm_block_hashes.json"


@pytest.fixture(scope="module")
def cases():
    with pytest.MonkeyPatch.context() as patch:
        seed(patch)
        return vectors()


def seed(patch):
    """Sets the server's seed to 0, and puts back what vLLM keeps of one."""
    from vllm.v1.core import kv_cache_utils

    patch.setenv("PYTHONHASHSEED", "0")
    for name in ("NONE_HASH", "_NONE_HASH_SEED"):
        if hasattr(kv_cache_utils, name):
            patch.setattr(kv_cache_utils, name, getattr(kv_cache_utils, name))


def test_hashes_are_those_of_this_vllm(cases):
    assert {case["algorithm"] for case in cases} >= {"sha256", "sha256_cbor"}
    for case in cases:
        hasher = BlockHasher(
            case["algorithm"], block_tokens=case["block_tokens"], seed=case["seed"]
        )
        hashes = hasher(PROMPTS[case["prompt"]], **KEYS[case["keys"]])
        assert [value.hex() for value in hashes] == case["hashes"]
        assert [as_int(value) for value in hashes] == case["ints"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_images_of_a_block_are_named_as_in_this_vllm(algorithm, monkeypatch):
    """One image twice in a block, as the engine's own process gets it: in a message."""
    import msgspec
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.utils import hashing
    from vllm.v1.core import kv_cache_utils as utils
    from vllm.v1.request import Request

    names = msgspec.msgpack.decode(msgspec.msgpack.encode(["image-1"] * 2))
    assert names[0] is not names[1]
    seed(monkeypatch)
    function = hashing.get_hash_fn_by_name(algorithm)
    utils.init_none_hash(function)
    request = Request(
        request_id="0",
        prompt_token_ids=[9] * 16,
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        mm_features=[
            MultiModalFeatureSpec(None, "image", name, PlaceholderRange(at, 2))
            for name, at in zip(names, (3, 8), strict=True)
        ],
        cache_salt="tenant",
        block_hasher=utils.get_request_block_hasher(16, function),
    )
    image = "image-1"
    found = BlockHasher(algorithm, seed="0")(
        [9] * 16, extra=[[("mm", image, 3), ("mm", image, 8)]], cache_salt="tenant"
    )
    assert found == request.block_hashes


def test_the_committed_vectors_are_still_vllms(cases):
    """A new version of vLLM that hashes otherwise shows here first."""
    given = json.loads(DATA.read_text())["cases"]
    assert all(case in given for case in cases)


def test_a_seed_is_asked_for_where_vllm_draws_one():
    with pytest.raises(InputError, match="PYTHONHASHSEED"):
        BlockHasher("xxhash_cbor")
