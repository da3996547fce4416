"""Least frequently used, with counts that outlive an eviction ("perfect" LFU)."""

import jax
import jax.numpy as jnp

from perc.types import Features, Policy


def lfu() -> Policy:
    """Keeps what was used by most requests so far, resident or not.

    score = number of requests that have used the block

    A block counts once a request. Wins on small caches, where it protects prompts that
    are shared or continued; loses on large ones, where blocks of conversations that
    ended long ago never leave.

    Example:
        >>> lfu().uses
        ('frequency',)

    References:
        Breslau et al. 1999, "Web caching and Zipf-like distributions", "Perfect LFU".
    """
    return Policy((), _score, "lfu", uses=("frequency",))


def _score(params: tuple, f: Features) -> jax.Array:
    return jnp.asarray(f.frequency, jnp.float32)
