"""Priority classes: a lower class is emptied before a higher one is touched."""

import jax
import jax.numpy as jnp

from perc.types import Features, Policy


def priority() -> Policy:
    """Keeps blocks of important requests; LRU inside a class.

    score = highest priority of any request that used the block

    The maximum over users keeps a shared prefix protected when a less important
    request reuses it. A trace without priorities has one class, which is LRU.

    Example:
        >>> priority().chain
        True

    References:
        TensorRT-LLM, "KV cache reuse", retention priorities; there the newest user's
        priority overrides.
    """
    return Policy((), _score, "priority", uses=("priority",), chain=True)


def _score(params: tuple, f: Features) -> jax.Array:
    return jnp.asarray(f.priority, jnp.float32)
