"""Priority classes: a lower class is emptied before a higher one is touched."""

import jax
import jax.numpy as jnp

from perc.errors import InputError
from perc.types import AnyPolicy, Features, Memory, OnlinePolicy, Policy, Scored


def priority(*, merge: str = "max") -> AnyPolicy:
    """Keeps blocks of important requests; LRU inside a class.

    score = priority of the requests that used the block, merged

    The maximum over users keeps a shared prefix protected when a less important
    request reuses it. A trace without priorities has one class, which is LRU.

    Args:
        merge: "max", the highest priority of any user so far; or "override", that of
            the last user, which strips a shared prefix of its protection when a less
            important request reuses it. Its victims are blocks without a resident
            child, since a parent may fall below its children.

    Raises:
        InputError: for another merge.

    Example:
        >>> priority().chain, priority(merge="override").rule.closed
        (True, True)

    References:
        SGLang, `evict_policy.py`, "priority"; TensorRT-LLM, "KV cache reuse", retention
        priorities, where the newest user's priority overrides.
    """
    if merge == "max":
        return Policy((), _score, "priority", uses=("priority",), chain=True)
    if merge == "override":
        rule = Scored(_override, closed=True)
        return OnlinePolicy((), rule, "priority", uses=("priority",))
    raise InputError(f"priority: merge is {merge!r}, must be 'max' or 'override'.")


def _score(params: tuple, f: Features) -> jax.Array:
    return jnp.asarray(f.priority, jnp.float32)


def _override(params: tuple, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    return _score(params, f), m.own
