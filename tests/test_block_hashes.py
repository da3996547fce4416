"""Block hashes against vectors that vLLM 0.32 made, and their rules."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.block_hashes import ALGORITHMS, BlockHasher, as_int, cbor
from perc.errors import InputError

# Made by tests/vllm/block_vectors.py.
GIVEN = json.loads((Path(__file__).parent / "data/vllm_block_hashes.json").read_text())
TOKENS = st.lists(st.integers(0, 300), max_size=12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_hashes_are_vllms_byte_for_byte(algorithm):
    if algorithm.startswith("xxhash"):
        pytest.importorskip("xxhash")
    cases = [case for case in GIVEN["cases"] if case["algorithm"] == algorithm]
    assert len(cases) >= 36 and {case["keys"] for case in cases} == set(GIVEN["keys"])
    for case in cases:
        size, seed = case["block_tokens"], case["seed"]
        hasher = BlockHasher(algorithm, block_tokens=size, seed=seed)
        hashes = hasher(GIVEN["prompts"][case["prompt"]], **GIVEN["keys"][case["keys"]])
        assert [value.hex() for value in hashes] == case["hashes"]
        assert [as_int(value) for value in hashes] == case["ints"]


def test_image_keys_stand_between_adapter_and_salt():
    hasher = BlockHasher("sha256_cbor", block_tokens=2)
    image = ("mm", "abc", 1)
    (found,) = hasher([5, 6], extra=[[image]], cache_salt="s", lora=("a", "/a"))
    keys = (("lora", "a", "/a"), image, ("cache_salt", "s"))
    assert found == hasher._hash((hasher.root, (5, 6), keys))
    assert hasher([5, 6], extra=[[]]) == hasher([5, 6])


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_equal_keys_have_equal_names_whoever_holds_the_objects(algorithm):
    """Pickle tells an object met twice from two that are equal; vLLM's has but "mm"."""
    hasher = BlockHasher(algorithm, block_tokens=2)
    mm, image, salt = "mm", "abc", b"s" * 3
    shared = (mm, image, 0), (mm, image, 1), ("prompt_embeds", salt, salt)
    equal = json.loads(json.dumps([["mm", "abc", 0], ["mm", "abc", 1]]))
    equal += [["".join(["prompt", "_embeds"]), bytes(bytearray(salt)), salt]]
    equal[0][2] = np.int64(0)
    twice = (shared[0],) * 2
    again = [("mm", "abc", 0), ["mm", "ab" + "abc"[2:], 0]]
    assert hasher([5, 6], extra=[shared]) == hasher([5, 6], extra=[equal])
    assert hasher([5, 6], extra=[twice]) == hasher([5, 6], extra=[again])
    path = "/a"
    apart = "".join(["/", "a"])
    assert hasher([5, 6], lora=(path, path)) == hasher([5, 6], lora=(path, apart))
    assert hasher([5, 6], extra=[twice]) != hasher([5, 6], extra=[shared[:2]])


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_blocks_share_a_name_where_and_only_where_all_before_is_equal(a, b, size):
    hasher = BlockHasher("sha256_cbor", block_tokens=size)
    first, second = hasher(a), hasher(b)
    assert len(first) == len(a) // size
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        assert (one == other) == (a[: (i + 1) * size] == b[: (i + 1) * size])


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_salt_adapter_and_seed_keep_prompts_apart(algorithm):
    hasher = BlockHasher(algorithm, block_tokens=2)
    other = BlockHasher(algorithm, block_tokens=2, seed="1")
    found = [
        hasher([1, 2, 3, 4]),
        hasher([1, 2, 3, 4], cache_salt="a"),
        hasher([1, 2, 3, 4], cache_salt="b"),
        hasher([1, 2, 3, 4], lora=("a", "/a")),
        hasher([1, 2, 3, 4], lora=("a", "/b")),
        other([1, 2, 3, 4]),
    ]
    assert len({name for names in found for name in names}) == 12


@pytest.mark.parametrize(
    "value, written",
    [  # RFC 8949, appendix A
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (1000, "1903e8"),
        (1000000, "1a000f4240"),
        (18446744073709551615, "1bffffffffffffffff"),
        (-1, "20"),
        (-1000, "3903e7"),
        (False, "f4"),
        (True, "f5"),
        (None, "f6"),
        (b"\x01\x02\x03\x04", "4401020304"),
        ("IETF", "6449455446"),
        ("\u6c34", "63e6b0b4"),
        ([1, [2, 3]], "8201820203"),
    ],
)
def test_cbor_is_that_of_the_standard(value, written):
    assert cbor(value).hex() == written


def test_what_cannot_be_written_is_refused():
    with pytest.raises(TypeError, match="float"):
        cbor((1.5,))
    with pytest.raises(OverflowError):
        cbor(2**64)


def test_bad_input():
    with pytest.raises(InputError, match="There are: sha256, sha256_cbor"):
        BlockHasher("md5")
    with pytest.raises(InputError, match="0 tokens; give 1 or more"):
        BlockHasher(block_tokens=0)
    with pytest.raises(InputError, match="draws a seed of its own"):
        BlockHasher("xxhash")
