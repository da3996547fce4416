"""Pools that the kernels' tests share, and comparison by bits."""

import jax.numpy as jnp
import numpy as np

DTYPES = ("bfloat16", "float16", "float32")


def pool_of(seed, shape, dtype):
    """Random pages [P, B, H, D] with a head of zeros and channels far from zero."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=shape).astype(np.float32)
    values[..., ::7] += 20  # offset channels, as keys have
    values[-1, :, 0] = 0
    return jnp.asarray(values).astype(dtype)


def same_bits(left, right):
    """Whether two arrays are equal bit for bit, all NaN being one value."""
    left, right = np.asarray(left), np.asarray(right)
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind in "iub":
        return bool(np.array_equal(left, right))
    word = f"u{left.dtype.itemsize}"
    numbers = left == left
    if not np.array_equal(numbers, right == right):
        return False
    return bool(np.array_equal(left.view(word)[numbers], right.view(word)[numbers]))
