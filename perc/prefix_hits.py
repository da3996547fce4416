"""Whether a prefix that was left in physical blocks can still be read there.

A turn ends, its blocks are free but cached, and the next turn wants them back. It may
read the leading blocks that *still carry its own keys*. To look whether the numbers are
free again is not enough: another request may have written them and gone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.paging import BlockPool, is_free


class Claim(NamedTuple):
    """What is left of a prefix in the blocks that it was written to."""

    owned: jax.Array  # i32[], leading blocks that still hold it: the hit
    stale: jax.Array  # i32[], blocks behind them that only look as if they did
    whole: jax.Array  # bool[], all of it is there


class HitTally(NamedTuple):
    """Claims so far, in blocks; `stale` is what a count by numbers would add."""

    claims: jax.Array  # i32[]
    whole: jax.Array  # i32[], claims of which nothing was lost
    asked: jax.Array  # i32[]
    owned: jax.Array  # i32[]
    stale: jax.Array  # i32[]


@jax.jit
def check_claim(pool: BlockPool, blocks: ArrayLike, keys: ArrayLike) -> Claim:
    """Compares the keys that a prefix was written under with those of its blocks now.

    Args:
        pool: C blocks.
        blocks: i32[L], where the prefix was written, root first, then -1.
        keys: i32[L], of its blocks.

    Example:
        >>> from perc import paging
        >>> pool, given = paging.allocate(paging.empty_pool(2), 2)
        >>> pool, _ = paging.name(pool, given.blocks, jnp.array([7, 8]))
        >>> pool = paging.release(pool, given.blocks)
        >>> pool, other = paging.allocate(pool, 1)  # takes the tail, block 1
        >>> pool, _ = paging.name(pool, other.blocks[:1], jnp.array([9]))
        >>> pool = paging.release(pool, other.blocks)
        >>> claim = check_claim(pool, given.blocks, jnp.array([7, 8]))
        >>> int(claim.owned), int(claim.stale), bool(claim.whole)
        (1, 1, False)

    References:
        The check that KVopt's forced-release experiment lacks: 12 to 29 of the 43 to
        69 hits that it reports for a scenario are stale.
    """
    blocks, keys = jnp.asarray(blocks), jnp.asarray(keys)
    real = (blocks >= 0) & (blocks < len(pool.key))
    mine = real & (keys >= 0) & (pool.key[blocks] == keys)
    owned = _leading(mine)
    seeming = _leading(mine | (real & is_free(pool)[blocks]))
    return Claim(owned, seeming - owned, owned == (blocks >= 0).sum())


def empty_tally() -> HitTally:
    """No claim so far."""
    return HitTally(*(jnp.zeros(5, jnp.int32)))


@jax.jit
def count_claim(tally: HitTally, claim: Claim, blocks: ArrayLike) -> HitTally:
    """The tally with one more claim to the blocks i32[L], padded with -1."""
    asked = (jnp.asarray(blocks) >= 0).sum()
    return HitTally(
        claims=tally.claims + 1,
        whole=tally.whole + claim.whole,
        asked=tally.asked + asked,
        owned=tally.owned + claim.owned,
        stale=tally.stale + claim.stale,
    )


def _leading(flags: jax.Array) -> jax.Array:
    """i32[], how many flags are set before the first that is not."""
    return jnp.cumprod(flags.astype(jnp.int32)).sum()
