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
    from vllm.v1.core import kv_cache_utils

    with pytest.MonkeyPatch.context() as patch:  # puts back what `vectors` changes
        patch.setenv("PYTHONHASHSEED", "0")
        for name in ("NONE_HASH", "_NONE_HASH_SEED"):
            if hasattr(kv_cache_utils, name):
                patch.setattr(kv_cache_utils, name, getattr(kv_cache_utils, name))
        return vectors()


def test_hashes_are_those_of_this_vllm(cases):
    assert {case["algorithm"] for case in cases} >= {"sha256", "sha256_cbor"}
    for case in cases:
        hasher = BlockHasher(
            case["algorithm"], block_tokens=case["block_tokens"], seed=case["seed"]
        )
        hashes = hasher(PROMPTS[case["prompt"]], **KEYS[case["keys"]])
        assert [value.hex() for value in hashes] == case["hashes"]
        assert [as_int(value) for value in hashes] == case["ints"]


def test_the_committed_vectors_are_still_vllms(cases):
    """A new version of vLLM that hashes otherwise shows here first."""
    given = json.loads(DATA.read_text())["cases"]
    assert all(case in given for case in cases)


def test_a_seed_is_asked_for_where_vllm_draws_one():
    with pytest.raises(InputError, match="PYTHONHASHSEED"):
        BlockHasher("xxhash_cbor")
