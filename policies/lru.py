"""Least recently used: what nearly every LLM server does today."""

import jax
import jax.numpy as jnp

from perc.types import Features, Policy


def lru() -> Policy:
    """Keeps what was used last; inside a request the tail leaves before the root.

    score = index of the last request that used the block

    Wins where the next turn comes soon and everything recent is equally likely to
    return. Loses when one-off prompts, a scan or a batch job push idle conversations
    out: it cannot tell a block that was used once from one that always comes back.

    Example:
        >>> lru().name
        'lru'

    References:
        Mattson et al. 1970, "Evaluation techniques for storage hierarchies".
    """
    return Policy((), _score, "lru", uses=("step",))


def _score(params: tuple, f: Features) -> jax.Array:
    return jnp.asarray(f.step, jnp.float32)
