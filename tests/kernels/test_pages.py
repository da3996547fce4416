"""Moving whole pages, the layout of stored ones, and what is refused."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.kernels import launch
from perc.kernels.evict import evict, restore
from perc.kernels.formats import FORMATS, Format, bytes_saved, layout
from perc.kernels.pages import copy, gather, scatter
from perc.kernels.quantised import dequantise, quantise
from perc.kernels.scores import scores
from perc.kernels.victims import victims
from tests.kernels.common import DTYPES, pool_of, same_bits

MODULES = "formats pages evict scores victims staging vllm_layout"
evict_jit = jax.jit(evict, static_argnums=2)
restore_jit = jax.jit(restore, static_argnums=3)
SIZES = (64, 80, 96, 112, 128, 256)
TABLES = st.lists(st.integers(-2, 6), min_size=5, max_size=5)


def numbers(n=5):
    return np.arange(n * 6, dtype=np.int32).reshape(n, 2, 3)


@given(table=TABLES)
@settings(max_examples=20, deadline=None)
def test_gather_reads_pages_or_zeros(table):
    pool = numbers()
    out = gather(jnp.asarray(pool), jnp.array(table))
    zeros = np.zeros((2, 3), np.int32)
    expected = [pool[p] if 0 <= p < 5 else zeros for p in table]
    assert np.array_equal(out, expected)


@given(
    table=TABLES.filter(
        lambda t: len({p for p in t if p >= 0}) == sum(p >= 0 for p in t)
    )
)
@settings(max_examples=20, deadline=None)
def test_scatter_writes_pages_and_skips_the_rest(table):
    pool, pages = numbers(), -1 - numbers()
    out = scatter(jnp.asarray(pool), jnp.array(table), jnp.asarray(pages))
    for page, data in zip(table, pages, strict=True):
        if 0 <= page < 5:
            pool[page] = data
    assert np.array_equal(out, pool)


def test_copy_skips_pairs_without_a_side():
    pool = jnp.asarray(numbers())
    out = np.asarray(copy(pool, jnp.array([0, 1, -1, 9]), jnp.array([3, -1, 2, 4])))
    assert np.array_equal(out[3], pool[0])
    assert np.array_equal(out[[0, 1, 2, 4]], np.asarray(pool)[[0, 1, 2, 4]])


def test_stored_rows_are_pages_too():
    rows = evict(pool_of(0, (4, 8, 1, 64), "bfloat16"), jnp.arange(4), Format("int8"))
    assert same_bits(gather(rows, jnp.array([2, -1]))[0], rows[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_what_was_evicted_is_restored_elsewhere(name, dtype):
    form, page = FORMATS[name], (8, 2, 16)
    pool = pool_of(3, (4, *page), dtype)
    stored = evict_jit(pool, jnp.array([2, -1, 0]), form)
    assert not stored[1].any()
    back = restore_jit(pool, jnp.array([1, -1, 3]), stored, form)
    direct = jax.jit(lambda p: dequantise(quantise(p, form), form, page, p.dtype))(pool)
    for target, source in ((1, direct[2]), (3, direct[0]), (0, pool[0]), (2, pool[2])):
        assert same_bits(back[target], source)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tokens", [8, 16, 256])
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_holds_its_parts_one_after_the_other(name, tokens, size):
    form, page = FORMATS[name], (tokens, 2, size)
    at = layout(form, page)
    codes = tokens * 2 * size * form.bits // 8
    groups = tokens * 2 * size // at.group
    scales = groups * (4 if form.scale_dtype == "float32" else 2)
    assert 0 <= at.scale_at - codes < 16 and at.scale_at % 16 == 0
    if form.symmetric:
        assert at.end == at.zero_at == at.scale_at + scales
    else:
        assert 0 <= at.zero_at - at.scale_at - scales < 16 and at.zero_at % 16 == 0
        assert at.end == at.zero_at + scales
    assert 0 <= at.row_bytes - at.end < 16 and at.row_bytes % 16 == 0
    assert at.outer * at.length * at.inner == tokens * 2 * size


def test_int8_with_one_scale_a_token_halves_a_page_of_bf16():
    assert bytes_saved(Format("int8"), (16, 8, 128), 2) == pytest.approx(
        1.939, abs=1e-3
    )
    assert bytes_saved(Format("int4"), (16, 8, 128), 2) == pytest.approx(
        3.765, abs=1e-3
    )


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Format("int3"), "kind is 'int3'"),  # type: ignore[arg-type]
        (lambda: Format("fp8", symmetric=False), "fp8 has no zero points"),
        (lambda: Format("int8", groups=0), "groups is 0"),
        (lambda: Format("int8", scale_dtype="int8"), "scale_dtype is 'int8'"),
        (lambda: layout(Format("int4"), (16, 8, 65)), "head size is 65"),
        (lambda: layout(Format("int4", groups=3), (16, 8, 96)), "groups is 3"),
        (lambda: layout(Format("int2", "channel"), (6, 8, 64)), "tokens a page is 6"),
        (lambda: evict(jnp.ones((2, 8, 64)), jnp.arange(1), Format("int8")), "pool is"),
        (
            lambda: restore(
                jnp.ones((2, 8, 1, 64)),
                jnp.arange(1),
                jnp.zeros((1, 3), jnp.uint8),
                Format("int8"),
            ),
            "stored pages are uint8",
        ),
        (lambda: gather(jnp.ones((2, 2)), jnp.ones(1)), "must be a list of page"),
        (lambda: gather(jnp.ones((2, 2)), jnp.arange(1), backend="cuda"), "'cuda'"),  # type: ignore[arg-type]
        (lambda: scatter(jnp.ones((2, 2)), jnp.arange(1), jnp.ones((1, 3))), "pages"),
        (lambda: copy(jnp.ones((2, 2)), jnp.arange(1), jnp.arange(2)), "as many"),
        (lambda: victims(jnp.ones((1, 4)), jnp.ones(1), jnp.zeros(4, bool), 0), "k is"),
        (
            lambda: scores(
                jnp.ones((1, 3, 64)),
                jnp.ones((2, 8, 2, 64)),
                jnp.zeros((1, 1), int),
                jnp.ones(1, int),
            ),
            "a multiple of 2 heads",
        ),
    ],
)
def test_what_does_not_fit_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("name", MODULES.split())
def test_examples(name):
    module = importlib.import_module(f"perc.kernels.{name}")
    result = doctest.testmod(module)
    assert result.attempted and result.failed == 0


DOCUMENT = Path(__file__).parents[2] / "docs" / "kernels.md"


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_example_in_the_docs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    exec(compile(code, "docs/kernels.md", "exec"), {})
    assert capsys.readouterr().out.startswith("50688 1.939")


def test_auto_is_jnp_without_a_gpu():
    assert jax.default_backend() != "gpu"
    assert launch.chosen("auto") == "jnp"


def test_nothing_imports_triton_before_it_is_asked_for():
    names = "formats quantised pages evict scores victims launch compat memory staging"
    names = [f"perc.kernels.{n}" for n in names.split()]
    code = f"""
import importlib, sys
for name in {names}: importlib.import_module(name)
import jax.numpy as jnp
from perc.kernels.pages import gather
gather(jnp.ones((2, 2)), jnp.arange(1))
print([m for m in ("triton", "jax_triton") if m in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert found.stdout == "[]\n", found.stderr
