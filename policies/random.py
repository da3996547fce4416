"""Random replacement: the baseline that any rule should beat."""

import jax
import jax.numpy as jnp

from perc.errors import InputError
from perc.types import Features, Policy


def random(*, seed: int = 0) -> Policy:
    """Draws a score for each request, uniform in [0, 1), from the seed.

    score = hash(seed, request) / 2**32

    A block keeps the highest draw of its users, so a prefix outlives what was built on
    it, and what many requests share tends to stay.

    Args:
        seed: names the sequence; the same seed gives the same victims.

    Raises:
        InputError: if the seed does not fit into 32 bits.

    Example:
        >>> random(seed=7).name
        'random'

    References:
        The mixing function is the finaliser of MurmurHash3 (Appleby, public domain).
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"seed is {seed}; give 0 to {2**32 - 1}")
    return Policy(
        {"seed": jnp.uint32(seed)}, _score, "random", uses=("step",), chain=True
    )


def _score(params: dict, f: Features) -> jax.Array:
    word = _mix(_mix(jnp.asarray(f.step).astype(jnp.uint32)) ^ _mix(~params["seed"]))
    # 24 bits are exact in a float32.
    return (word >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def _mix(word: jax.Array) -> jax.Array:
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    word = (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)
    return word ^ (word >> 16)
