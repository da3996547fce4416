"""vLLM's layout byte by byte, and against vLLM itself where that is installed."""

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS
from perc.kernels.vllm_layout import blocks_from_floats, blocks_of, rows_of
from tests.kernels.common import pool_of, same_bits
from tests.oracles.quantised import nearest_e4m3

PAGE = (3, 2, 8)  # tokens, heads, head size
KINDS = ("int8", "fp8")
quantised = jax.jit(blocks_from_floats, static_argnums=2)


def half_of(line, kind):
    """What vLLM's kernel makes of one head at one token, in plain Python."""
    largest = np.float32(127 if kind == "int8" else 448)
    scale = max(np.float32(max(abs(x) for x in line)) / largest, np.float32(1e-6))
    codes = []
    for x in line:
        y = np.float32(x) * (np.float32(1) / scale)
        if kind == "fp8":
            codes.append(nearest_e4m3(float(min(max(y, -448), 448))))
        else:
            y = y + np.float32(0.5 if y >= 0 else -0.5)
            codes.append(int(min(max(y, -128), 127)) % 256)
    return bytes(codes) + struct.pack("<f", scale)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 1000), exponent=st.integers(-30, 30))
@settings(max_examples=15, deadline=None)
def test_every_byte(kind, seed, exponent):
    rng = np.random.default_rng(seed)
    pages = rng.normal(size=(2, 2, *PAGE)).astype(np.float32) * 2.0**exponent
    pages[0, 1, 2, 1] = 0
    keys, values = jnp.asarray(pages, jnp.float32)
    found = np.asarray(quantised(keys, values, kind))
    assert found.shape == (2, 2, 3, 24) and found.dtype == np.uint8
    for p, h, t in np.ndindex(2, 2, 3):
        both = (half_of(side[p, t, h], kind) for side in np.asarray((keys, values)))
        assert found[p, h, t].tobytes() == b"".join(both)


def test_halves_are_rounded_away_from_zero():
    """`evict` rounds them to even."""
    line = jnp.array([127.0, 0.5, -0.5, 2.5, -2.5, 1.5, 0, 3.5]).reshape(1, 1, 1, 8)
    codes = np.asarray(quantised(line, line, "int8"))[0, 0, 0, :8].view(np.int8)
    assert codes.tolist() == [127, 1, -1, 3, -3, 2, 0, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_blocks_are_the_same_bytes(kind):
    form = FORMATS[f"{kind}_token"]
    pool, other = (pool_of(seed, (4, *PAGE), "bfloat16") for seed in (1, 2))
    keys, values = (evict(p, jnp.arange(4), form) for p in (pool, other))
    blocks = blocks_of(keys, values, kind, PAGE)
    assert blocks.shape == (4, 2, 3, 24)
    back = rows_of(blocks.astype(jnp.int8), kind)
    assert same_bits(back[0], keys) and same_bits(back[1], values)


@pytest.mark.parametrize("kind, error", [("int8", 1 / 253), ("fp8", 1 / 16)])
def test_what_vllm_stored_can_be_restored(kind, error):
    """Its blocks go to floats through the rows, within half a step of its codes."""
    keys, values = (pool_of(seed, (4, *PAGE), "float32") for seed in (3, 4))
    rows = rows_of(quantised(keys, values, kind), kind)
    for stored, floats in zip(rows, (keys, values), strict=True):
        form = FORMATS[f"{kind}_token"]
        back = restore(jnp.zeros_like(floats), jnp.arange(4), stored, form)
        most = abs(floats).max(axis=3, keepdims=True)
        assert (abs(back - floats) <= most * error).all()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: quantised(x, x, "int4"), "kind is 'int4'"),
        (lambda x: blocks_from_floats(x, x[:1], "int8"), "must both be"),
        (
            lambda x: blocks_from_floats(x[..., :6], x[..., :6], "int8"),
            "head size is 6",
        ),
        (lambda x: rows_of(x, "int8"), "must be bytes"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(jnp.zeros((2, *PAGE)))


@pytest.mark.skipif(
    not (importlib.util.find_spec("vllm") and importlib.util.find_spec("triton"))
    and not os.environ.get("PERC_EXPECT_VLLM"),
    reason="vLLM and Triton are not installed",
)
def test_vllm_writes_the_same_bytes():
    """Its kernel in Triton's interpreter, through its own views of a cache."""
    script = Path(__file__).with_name("vllm_bytes.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["int8:same", "fp8:same"]
