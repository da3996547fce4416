"""The Triton kernels' source, run in Triton's interpreter: bit-equal to the references.

Needs `TRITON_INTERPRET=1` before Triton is imported; `.ci/kernels` sets it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore

from perc.kernels import evict as evicting
from perc.kernels import interpreter
from perc.kernels import victims as choosing
from perc.kernels.evict import evict, evict_launch, restore, restore_launch
from perc.kernels.formats import FORMATS, Format
from perc.kernels.launch import Launch
from perc.kernels.memory import HostTensor, Memory
from perc.kernels.pages import copy, gather, gather_launch, scatter
from perc.kernels.scores import scores
from perc.kernels.victims import victims
from tests.kernels.common import DTYPES, pool_of, same_bits
from tests.oracles.quantised import e4m3

FORMS = {
    **FORMATS,
    "int8_asymmetric": Format("int8", symmetric=False),
    "int8_channel_groups": Format("int8", "channel", groups=2, scale_dtype="bfloat16"),
    "int4_token_one_scale": Format("int4", scale_dtype="bfloat16"),
    "int4_channel_asymmetric": Format("int4", "channel", False, 2, "bfloat16"),
    "int2_token_pairs": Format("int2", groups=2),
    "fp8_bfloat16": Format("fp8", scale_dtype="bfloat16"),
}
# Every head size and block size, each with other formats and dtypes beside it.
SHAPES = [
    (8, 64),
    (16, 80),
    (24, 96),
    (32, 112),
    (16, 128),
    (8, 256),
    (64, 80),
    (256, 64),
]
TABLE = jnp.array([2, -1, 0], jnp.int32)
TARGETS = jnp.array([1, 3, -1], jnp.int32)


def check(pool, form, fp8=True):
    """Compares evict and restore with their references bit for bit."""
    plan = evict_launch(pool, TABLE, form, fp8=fp8)
    expected = evicting.evict_reference(pool, TABLE, form)
    stored = interpreter.run(plan)[0]
    assert same_bits(stored, expected)
    plan = restore_launch(pool, TARGETS, expected, form, fp8=fp8)
    back = interpreter.run(plan)[0]
    assert same_bits(back, evicting.restore_reference(pool, TARGETS, expected, form))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMS)
def test_every_format_and_dtype(name, dtype):
    check(pool_of(6, (4, 8, 2, 64), dtype), FORMS[name])


@pytest.mark.parametrize("tokens, size", SHAPES)
@pytest.mark.parametrize("name", FORMATS)
def test_every_head_size_and_block_size(name, tokens, size):
    check(pool_of(7, (4, tokens, 1, size), "bfloat16"), FORMATS[name])


@pytest.mark.parametrize("name", [n for n in FORMS if "fp8" in n])
def test_fp8_in_integers_is_fp8_of_the_gpu(name):
    check(pool_of(8, (4, 8, 2, 64), "float32"), FORMS[name], fp8=False)


@pytest.mark.parametrize("fp8", [True, False])
def test_every_fp8_code_survives(fp8):
    finite = [c for c in range(256) if c & 0x7F != 0x7F]
    values = [e4m3(c) for c in finite] + [448.0, -448.0]
    pool = jnp.asarray(values, jnp.float32).reshape(1, 1, 1, 256)
    plan = evict_launch(pool, jnp.zeros(1, jnp.int32), Format("fp8"), fp8=fp8)
    (stored,) = interpreter.run(plan)
    assert stored[0, :254].tolist() == finite
    plan = restore_launch(pool, jnp.zeros(1, jnp.int32), stored, Format("fp8"), fp8=fp8)
    assert same_bits(interpreter.run(plan)[0], pool)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf, 3e38, 1e-40])
@pytest.mark.parametrize("name", FORMS)
def test_nan_infinity_and_extremes(name, bad):
    pool = pool_of(9, (4, 8, 1, 16), "float32")
    check(pool.at[2, 3, 0, 5].set(bad).at[0, 0, 0, 0].set(-bad), FORMS[name])


@pytest.mark.parametrize("dtype", [*DTYPES, "uint8", "float8_e4m3fn", "int32"])
def test_pages_move_as_they_are(dtype):
    rng = np.random.default_rng(10)
    size = jnp.dtype(dtype).itemsize
    raw = rng.integers(0, 256, (6, 5000 * size), np.uint8)  # NaN patterns among them
    pool = jnp.asarray(raw.view(dtype))
    table = jnp.array([4, -1, 0, 6], jnp.int32)
    words = f"u{size}"
    got = gather(pool, table, backend="interpret")
    expected = gather(pool, table, backend="jnp")
    assert np.array_equal(np.asarray(got).view(words), np.asarray(expected).view(words))
    back = scatter(pool, jnp.array([5, -1, 2, 7]), got, backend="interpret")
    expected = scatter(pool, jnp.array([5, -1, 2, 7]), got, backend="jnp")
    assert np.array_equal(
        np.asarray(back).view(words), np.asarray(expected).view(words)
    )
    source, target = jnp.array([0, 1, -1]), jnp.array([3, 6, 2])
    moved = copy(pool, source, target, backend="interpret")
    expected = copy(pool, source, target, backend="jnp")
    assert np.array_equal(
        np.asarray(moved).view(words), np.asarray(expected).view(words)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [None, *FORMATS])
def test_scores_agree_but_for_the_order_of_sums(name, dtype):
    size, queries = (80, 3) if dtype == "float32" else (64, 4)
    keys = pool_of(11, (6, 8, 2, size), dtype)
    rng = np.random.default_rng(12)
    query = jnp.asarray(rng.normal(size=(2, 2 * queries, size)) / 8).astype(dtype)
    tables = jnp.array([[2, -1, 3, 5, 0], [0, 1, 4, -1, 6]])
    lengths = jnp.array([37, 17])
    form = FORMATS[name] if name else None
    options = {"form": form, "page": (8, 2, size)} if form else {}
    if form:
        keys = evict(keys, jnp.arange(6), form, backend="jnp")
    expected, got = (
        np.asarray(scores(query, keys, tables, lengths, backend=b, **options))  # type: ignore[arg-type]
        for b in ("jnp", "interpret")
    )
    seen = np.isfinite(expected)
    assert np.array_equal(seen, np.isfinite(got))
    most = np.abs(expected[seen]).max()
    assert np.abs(expected[seen] - got[seen]).max() <= 1e-5 * most


@pytest.mark.parametrize("k", [1, 5, 64])
def test_victims_are_equal(monkeypatch, k):
    monkeypatch.setattr(choosing, "TILE", 64)  # sorting is slow in the interpreter
    rng = np.random.default_rng(13)
    features = rng.integers(-3, 3, (3, 150)).astype(np.float32)
    features[1, [7, 99]] = np.nan, np.inf
    weights = rng.normal(size=3).astype(np.float32)
    pinned = rng.random(150) < 0.6
    given = jnp.asarray(features), jnp.asarray(weights), jnp.asarray(pinned)
    got = victims(*given, k=k, backend="interpret")
    assert got.tolist() == victims(*given, k=k, backend="jnp").tolist()


def test_under_jit():
    pool = pool_of(14, (4, 8, 1, 64), "bfloat16")
    form = FORMATS["int8_token"]

    @jax.jit
    def moved(pool):
        stored = evict(pool, TABLE, form, backend="interpret")
        return restore(pool, TARGETS, stored, form, backend="interpret")

    stored = evict(pool, TABLE, form, backend="jnp")
    assert same_bits(moved(pool), restore(pool, TARGETS, stored, form, backend="jnp"))


def test_evict_reads_every_page_once_and_writes_rows_alone():
    pool = pool_of(15, (4, 16, 2, 128), "bfloat16")
    plan = evict_launch(pool, jnp.array([1, 3], jnp.int32), Format("int8"))
    (rows,), memory = interpreter.execute(plan, [np.asarray(a) for a in plan.inputs])
    programs = plan.grid[0] * plan.grid[1]
    assert memory.bytes_read == pool.nbytes // 2 + 4 * programs  # and its page number
    assert memory.bytes_written == rows.nbytes


def test_no_pages_are_no_launch():
    pool = pool_of(16, (2, 8, 1, 64), "bfloat16")
    none = jnp.zeros(0, jnp.int32)
    assert gather(pool, none, backend="interpret").shape == (0, 8, 1, 64)
    assert evict(pool, none, Format("int8"), backend="interpret").shape[0] == 0


@triton.jit
def stray(source, target, SHIFT: tl.constexpr):
    at = tl.arange(0, 8)
    tl.store(target + at, tl.load(source + at + SHIFT))


def test_a_page_named_twice_is_a_race():
    pool = jnp.zeros((3, 16))
    with pytest.raises(Exception, match="writes what another wrote"):
        scatter(pool, jnp.array([1, 1]), jnp.ones((2, 16)), backend="interpret")


def test_a_source_that_is_a_target_is_a_race():
    pool = jnp.zeros((3, 16))
    with pytest.raises(Exception, match="what another"):
        copy(pool, jnp.array([0, 1]), jnp.array([1, 2]), backend="interpret")


@pytest.mark.parametrize("shift", [0, 1])
def test_a_stray_index_is_found(shift):
    source, target = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    tensors = [HostTensor(source), HostTensor(target)]
    with interpreter.patched(Memory(tensors)):
        if not shift:
            stray[(1,)](*tensors, SHIFT=0)  # pyright: ignore
            assert np.array_equal(source, target)
            return
        with pytest.raises(Exception, match="byte 32 of buffer 0"):
            stray[(1,)](*tensors, SHIFT=1)  # pyright: ignore


def test_patches_are_undone():
    from triton.runtime import interpreter as stock  # pyright: ignore

    before = stock._convert_float
    with interpreter.patched(Memory([])):
        assert stock._convert_float is not before
    assert stock._convert_float is before
    assert "create_masked_load" not in vars(stock.interpreter_builder)


def test_lanes_that_nobody_writes_show():
    shape = jax.ShapeDtypeStruct((3,), jnp.uint8)
    assert interpreter.poisoned(shape).tolist() == [0xA5] * 3
    plan = gather_launch(jnp.ones((2, 4)), jnp.array([0]))
    assert isinstance(plan, Launch)
