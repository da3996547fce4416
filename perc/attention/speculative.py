"""Speculative decoding: a draft proposes k tokens, the target checks them at once.

    accept token x with probability min(1, p(x) / q(x));  p target, q draft
    at the first refusal draw from  max(p - q, 0), normalised;  else one more from p

What comes out is distributed as the target's own tokens, exactly. If each proposal is
accepted with probability a, independently, a pass gives on average

    E = (1 - a**(k + 1)) / (1 - a)  tokens

References:
    Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative
    Decoding", equation 1 and appendix A.1.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.errors import InputError


class Pass(NamedTuple):
    """The tokens of one pass of the target model."""

    tokens: jax.Array  # i32[k + 1], then -1
    accepted: jax.Array  # i32[], proposals among them; one token more comes out


def expected_tokens(acceptance: float, drafted: int) -> float:
    """Tokens of a pass, on average.

    Args:
        acceptance: a, probability that a proposal is accepted, 0 to 1.
        drafted: k, proposals a pass.

    Raises:
        InputError: if they are out of range.

    Example:
        >>> round(expected_tokens(0.8, 4), 4)
        3.3616
    """
    if not 0 <= acceptance <= 1 or drafted < 0:
        raise InputError(
            f"acceptance {acceptance} of {drafted} drafted tokens; give a probability, "
            "and 0 or more tokens."
        )
    return float(sum(acceptance**i for i in range(drafted + 1)))


def speed_up(acceptance: float, drafted: int, draft_cost: float) -> float:
    """Times as fast as the target alone, where a pass checks k tokens at no extra cost.

    Args:
        acceptance: a, 0 to 1.
        drafted: k, proposals a pass.
        draft_cost: seconds of a draft token / seconds of a pass of the target.

    Raises:
        InputError: if a value is out of range.

    Example:
        >>> round(speed_up(0.8, 4, 0.05), 3)
        2.801
    """
    if not draft_cost >= 0:
        raise InputError(f"draft_cost is {draft_cost}, must be 0 or more.")
    return expected_tokens(acceptance, drafted) / (1 + drafted * draft_cost)


@functools.partial(jax.jit, static_argnames=("drafted", "passes"))
def simulate_passes(
    key: jax.Array, acceptance: jax.Array, *, drafted: int, passes: int
) -> jax.Array:
    """Tokens i32[passes] of passes that accept at random; the key is consumed."""
    yes = jax.random.bernoulli(key, acceptance, (passes, drafted))
    return jnp.cumprod(yes.astype(jnp.int32), axis=1).sum(axis=1) + 1


@jax.jit
def verify(
    key: jax.Array, proposals: jax.Array, draft: jax.Array, target: jax.Array
) -> Pass:
    """One pass: which proposals stand, and what the target says next.

    Args:
        key: is consumed.
        proposals: i32[k], drawn from the rows of `draft`.
        draft: f32[k, V], the distribution that each was drawn from.
        target: f32[k + 1, V], the target's after each accepted prefix.
    """
    k = len(proposals)
    chance, last = jax.random.split(key)
    at = jnp.arange(k)
    p, q = target[at, proposals], draft[at, proposals]
    # u < p / q without a division: a proposal of q = 0 cannot have been drawn.
    stands = jax.random.uniform(chance, (k,)) * q < p
    accepted = jnp.cumprod(stands.astype(jnp.int32)).sum()
    none = jnp.zeros_like(target[:1])  # there is no draft after the last proposal
    drafted = jnp.concatenate([draft, none])[accepted]
    rest = jnp.maximum(target[accepted] - drafted, 0.0)
    rest = jnp.where(rest.sum() > 0, rest, target[accepted])  # equal but for rounding
    extra = jax.random.categorical(last, jnp.log(rest))
    place = jnp.arange(k + 1)
    tokens = jnp.where(place < accepted, jnp.append(proposals, 0), -1)
    return Pass(jnp.where(place == accepted, extra, tokens).astype(jnp.int32), accepted)


@jax.jit
def acceptance_of(draft: jax.Array, target: jax.Array) -> jax.Array:
    """Probability f32[...] that a proposal stands: sum over V of min(p, q)."""
    return jnp.minimum(draft, target).sum(axis=-1)
