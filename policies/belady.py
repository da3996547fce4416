"""The clairvoyant bound: evict what is needed last. It reads the future."""

import jax
import jax.numpy as jnp

from perc.features import NEVER
from perc.types import Features, Policy


def belady() -> Policy:
    """Farthest next use first; the running request must fit (a GPU pool).

    score = -(index of the next request that uses the block), -inf if none does

    No policy without bypass hits more blocks. For hits weighted by tokens, bytes or
    recompute time it is a bound to compare with, not the optimum.

    Example:
        >>> belady().clairvoyant
        True

    References:
        Belady 1966, "A study of replacement algorithms for a virtual-storage computer".
        On chains the next use of a parent is never later than that of its child, so
        the rule keeps prefixes whole.
    """
    return Policy((), _score, "belady", uses=("next_use",), clairvoyant=True)


def belady_bypass() -> Policy:
    """Farthest next use first, and a new block may be refused (an offload tier).

    Example:
        >>> belady_bypass().bypass
        True

    References:
        As `belady`; McFarling 1992 for caches that may exclude the newcomer.
    """
    return Policy(
        (), _score, "belady_bypass", uses=("next_use",), bypass=True, clairvoyant=True
    )


def _score(params: tuple, f: Features) -> jax.Array:
    next_use = jnp.asarray(f.next_use, jnp.float32)
    return jnp.where(f.next_use == NEVER, -jnp.inf, -next_use)
