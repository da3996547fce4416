"""Compares vLLM's cache bytes with perc's; `test_vllm_layout.py` runs it.

vLLM's kernel runs in Triton's interpreter, with the repaired conversion to E4M3 of
`perc.kernels.interpreter`; the views of the cache are made by vLLM's own backend. A
process of its own: vLLM's package for CPUs hides Triton from its modules, so that has
to be undone before they are imported.
"""

import types

import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore
import triton  # pyright: ignore
import triton.language as tl  # pyright: ignore
import vllm.triton_utils as shown  # pyright: ignore
from triton.runtime import interpreter  # pyright: ignore

from perc.kernels.interpreter import convert_float
from perc.kernels.vllm_layout import Kind, blocks_from_floats

shown.triton, shown.tl = triton, tl
interpreter._convert_float = convert_float

from vllm.v1.attention.backends.triton_attn import (  # noqa: E402  # pyright: ignore
    TritonAttentionImpl,
)
from vllm.v1.attention.ops import (  # noqa: E402  # pyright: ignore
    triton_reshape_and_cache_flash as kernels,
)
from vllm.v1.kv_cache_interface import KVQuantMode  # noqa: E402  # pyright: ignore

PAGES, TOKENS, HEADS, SIZE = 3, 16, 2, 64
MODES: dict[Kind, tuple] = {
    "int8": (KVQuantMode.INT8_PER_TOKEN_HEAD, torch.int8),
    "fp8": (KVQuantMode.FP8_PER_TOKEN_HEAD, torch.uint8),
}


def written(keys, values, kind):
    """The bytes of vLLM's cache, every slot filled."""
    mode, dtype = MODES[kind]
    cache = torch.zeros(PAGES, HEADS, TOKENS, 2 * (SIZE + 4), dtype=dtype)
    backend = types.SimpleNamespace(
        _k_scale_cache=None,
        _v_scale_cache=None,
        _kv_quant_mode=mode,
        fp8_dtype=torch.float8_e4m3fn,
    )
    backend._ensure_scale_caches = types.MethodType(
        TritonAttentionImpl._ensure_scale_caches, backend
    )
    views = TritonAttentionImpl._pth_key_value_caches(backend, cache)
    kernels.triton_reshape_and_cache_flash_per_token_head_quant(
        torch.tensor(keys.reshape(-1, HEADS, SIZE)),
        torch.tensor(values.reshape(-1, HEADS, SIZE)),
        *views,
        backend._k_scale_cache,
        backend._v_scale_cache,
        torch.arange(PAGES * TOKENS),
        kv_quant_mode=mode,
    )
    return cache.view(torch.uint8).numpy()


def main():
    rng = np.random.default_rng(0)
    keys, values = rng.normal(size=(2, PAGES, TOKENS, HEADS, SIZE)).astype(np.float32)
    keys[..., ::7] += 20
    keys[-1, :, 0] = 0
    values[0, 0, 0, :5] = [127, 0.5, -0.5, 2.5, -1.5]  # halves
    for kind in MODES:
        ours = np.asarray(
            blocks_from_floats(jnp.asarray(keys), jnp.asarray(values), kind)
        )
        same = np.array_equal(ours, written(keys, values, kind))
        print(f"{kind}:{'same' if same else 'differs'}")


if __name__ == "__main__":
    main()
