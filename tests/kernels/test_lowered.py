"""Kernels lowered through jax-triton for a GPU that is not there.

Most of jax-triton's troubles are with versions of JAX and Triton; these tests see them.
"""

import os

import jax
import jax.numpy as jnp
import pytest

from perc.kernels import compat
from perc.kernels.evict import evict_launch, restore_launch
from perc.kernels.formats import FORMATS, layout
from perc.kernels.launch import run_triton
from perc.kernels.pages import gather_launch, scatter_launch

POOL = jax.ShapeDtypeStruct((64, 16, 2, 128), jnp.bfloat16)
TABLE = jax.ShapeDtypeStruct((8,), jnp.int32)
PAGES = jax.ShapeDtypeStruct((8, *POOL.shape[1:]), POOL.dtype)


def missing():
    """Why kernels cannot be lowered here, None where they can."""
    try:
        compat.jax_triton()
    except ImportError as error:
        return str(error)
    import jaxlib.gpu_triton

    if not hasattr(jaxlib.gpu_triton, "TritonKernel"):
        return "jax-cuda13-plugin is not installed"
    return None


pytestmark = pytest.mark.skipif(
    bool(missing()) and not os.environ.get("PERC_EXPECT_KERNELS"),
    reason=str(missing()),
)


def lowered(function, *shapes, donate=()):
    jitted = jax.jit(function, donate_argnums=donate)
    return jitted.trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()


def test_a_plain_call():
    def gathered(pool, table):
        return run_triton(gather_launch(pool, table), 90)[0]

    text = lowered(gathered, POOL, TABLE)
    assert text.count("triton_kernel_call") == 1
    assert "output_operand_aliases = []" in text or "operand_aliases" not in text


def test_an_aliased_call_updates_a_donated_pool():
    def scattered(pool, table, pages):
        return run_triton(scatter_launch(pool, table, pages), 90)[0]

    text = lowered(scattered, POOL, TABLE, PAGES, donate=(0,))
    assert text.count("triton_kernel_call") == 1
    assert "output_operand_alias" in text
    assert "tf.aliasing_output" in text or "jax.buffer_donor" in text


@pytest.mark.parametrize("name", ["int8_token", "int2_values"])
def test_fused_calls(name):
    form = FORMATS[name]
    row = layout(form, POOL.shape[1:]).row_bytes  # type: ignore[arg-type]

    def there_and_back(pool, table):
        (stored,) = run_triton(evict_launch(pool, table, form), 90)
        return run_triton(restore_launch(pool, table, stored, form), 90)[0], stored

    text = lowered(there_and_back, POOL, TABLE)
    assert text.count("triton_kernel_call") == 2
    assert f"tensor<8x{row}xui8>" in text


def test_the_repaired_rule_lets_unused_calls_be():
    def unused(pool, table):
        run_triton(gather_launch(pool, table), 90)
        return pool

    assert lowered(unused, POOL, TABLE)
