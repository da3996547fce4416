"""First in, last out: a diagnostic, the mirror image of FIFO."""

import jax
import jax.numpy as jnp

from perc.types import Features, Policy


def filo() -> Policy:
    """Evicts what was inserted last; a hit changes nothing.

    score = -(index of the request that inserted the block)

    A diagnostic: whatever filled the cache first stays for good, so its hits are those
    of a cache that stops learning. A child is never inserted before its parent, so no
    prefix is left with a hole.

    Example:
        >>> filo().refresh
        False

    References:
        SGLang, `evict_policy.py`, "filo".
    """
    return Policy((), _score, "filo", uses=("step",), refresh=False)


def _score(params: tuple, f: Features) -> jax.Array:
    return -jnp.asarray(f.step, jnp.float32)
