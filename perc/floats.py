"""Arithmetic that runs in NumPy on NumPy's numbers and in JAX on JAX's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any  # a number, or an array of NumPy or JAX


def floats(*values: Array, in_jax: bool = False) -> tuple:
    """The namespace of the arrays, then they as floats of it.

    Whole numbers become floats since a length's square overflows an int32. NumPy gets
    float64, JAX its default float.

    >>> xp, n = floats(3)
    >>> xp.__name__, n.dtype.name
    ('numpy', 'float64')
    >>> floats(2, jnp.ones(3))[1].dtype.name
    'float32'
    """
    if in_jax or any(isinstance(value, jax.Array) for value in values):
        kind = jnp.result_type(float)
        return jnp, *(jnp.asarray(value, kind) for value in values)
    return np, *(np.asarray(value, np.float64) for value in values)
