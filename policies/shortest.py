"""By length of the prompt: two diagnostics without any sense of time."""

import jax
import jax.numpy as jnp

from perc.types import Features, Policy


def shortest() -> Policy:
    """Evicts the blocks of the shortest context first.

    score = tokens of the longest prompt that has used the block

    A diagnostic. Nothing ages: the longest prompts so far stay for good, so the cache
    fills with a few ended conversations. It shows how much of a result comes from
    length alone, as in scores that multiply by recompute cost. LRU among equals.

    Example:
        >>> shortest().uses
        ('input_tokens',)

    References:
        aryanputta/cachepilot on GitHub, the policy "Priority", which ranks sessions by
        their length. The maximum over users keeps prefixes whole.
    """
    return Policy((), _length, "shortest", uses=("input_tokens",), chain=True)


def largest() -> Policy:
    """Evicts the blocks of the longest context first; the mirror image of `shortest`.

    score = -(tokens of the shortest prompt that has used the block)

    A diagnostic. Keeps many short prompts instead of few long ones, and system prompts
    with them; conversations leave as they grow. LRU among equals.

    Example:
        >>> largest().chain
        True

    References:
        As `shortest`; in Web caches the rule is called SIZE (Williams et al. 1996,
        "Removal policies in network caches for World-Wide Web documents").
    """
    return Policy((), _brevity, "largest", uses=("input_tokens",), chain=True)


def _length(params: tuple, f: Features) -> jax.Array:
    return jnp.asarray(f.input_tokens, jnp.float32)


def _brevity(params: tuple, f: Features) -> jax.Array:
    return -_length(params, f)
