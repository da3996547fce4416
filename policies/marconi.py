"""Marconi: recency and saved work per byte, each between the extremes of the moment."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.errors import check_number
from perc.leaves import NO, Leaves, add, drop_last, no_leaves, place_of, swap, tip
from perc.lists import read, when, write
from perc.types import Access, Listed, OnlinePolicy

CHUNK = 256  # leaves that one turn of a loop looks at
WORK, LAST = range(2)  # columns of a leaf's row


def marconi(*, alpha: float = 1.0) -> OnlinePolicy:
    """Evicts the leaf of the least utility; every victim changes what all are worth.

        utility = alpha * N(FLOPs saved / bytes) + N(1 / requests idle)
        N(x)    = (x - min) / (max - min) over the candidates, 1 if all are equal

    The FLOPs saved by a block of n tokens after p others in a model of width D are
    8nD^2 + 4D((p+n)^2 - p^2) per attention layer and 16nD^2 per MLP, its bytes 4nD per
    attention layer. So FLOPs per byte are 2p + n and a constant, and N leaves 2p + n:
    the model does not matter, deep blocks are worth more.

    A hit renews the time stamp of the deepest block that it found, and of no other; so
    a prefix that many prompts share is old once its children have left. With `alpha=0`
    conversations hit as with LRU. Above, the ends of the longest prompts stay for good
    and hits are lost: 1 / idle is near 0 for all but the newest leaf, so even a small
    `alpha` outweighs it.

    The paper is about models with recurrent layers. There an inner node of one child
    may lose its state while the keys and values stay, and is a candidate too; blocks
    here are keys and values alone, so the candidates are the blocks without a resident
    child, but for the running request's.

    Args:
        alpha: weight of the saved work. The paper tunes it by replaying what came last.

    Raises:
        InputError: if alpha is negative or no float32.

    Example:
        >>> marconi(alpha=0.5).name
        'marconi'

    References:
        Pan et al. 2025, "Marconi: prefix caching for the era of hybrid LLMs" (MLSys;
        arXiv 2411.19379), the formula as intended, not as its code has it.
    """
    check_number("marconi", "alpha", alpha)
    rule = Listed(_init, _hit, _evict, _insert, root_first=True)
    uses = ("step", "prefix_tokens", "tokens")
    return OnlinePolicy({"alpha": jnp.float32(alpha)}, rule, "marconi", uses)


class Extremes(NamedTuple):
    """Of the candidates."""

    work: tuple[jax.Array, jax.Array]  # f32[], least and most FLOPs per byte
    last: tuple[jax.Array, jax.Array]  # f32[], oldest and newest time stamp


def utility(alpha, work, last, now, extremes: Extremes) -> jax.Array:
    """What candidates are worth f32[...]; time stamps lie before `now`."""
    oldest, newest = extremes.last
    recent = _normal(1 / (now - last), 1 / (now - oldest), 1 / (now - newest))
    return alpha * _normal(work, *extremes.work) + recent


def _normal(x, low, high) -> jax.Array:
    return jnp.where(high > low, (x - low) / jnp.where(high > low, high - low, 1), 1)


class _Forest(NamedTuple):
    leaves: Leaves
    rows: jax.Array  # f32[M + CHUNK, 2], work and stamp of the leaf at each place
    notes: jax.Array  # f32[M + 1, 2], the same of each resident block
    stamp: jax.Array  # f32[], of the block that was hit last, before that


def _init(params: dict, capacity: jax.Array, n_blocks: int) -> _Forest:
    return _Forest(
        leaves=no_leaves(n_blocks),
        rows=jnp.zeros((n_blocks + CHUNK, 2), jnp.float32),
        notes=jnp.zeros((n_blocks + 1, 2), jnp.float32),
        stamp=jnp.float32(0),
    )


def _hit(params: dict, s: _Forest, access: Access) -> _Forest:
    """The block is the deepest one found so far; the one above was not, after all."""
    notes, above = read(s.notes, access.parent)
    notes = write(notes, access.parent, above.at[LAST].set(s.stamp))
    notes, row = read(notes, access.block)
    leaves, at = place_of(s.leaves, access.block)
    new = row.at[LAST].set(jnp.float32(access.features.step))
    s = _Forest(leaves, s.rows, write(notes, access.block, new), row[LAST])
    return when(at != NO, lambda s: s._replace(rows=write(s.rows, at, new)), s)


def _insert(params: dict, s: _Forest, access: Access) -> _Forest:
    f = access.features
    row = jnp.stack([2 * f.prefix_tokens + f.tokens, f.step]).astype(jnp.float32)
    leaves, at = add(s.leaves, access.block, access.parent)
    return s._replace(
        leaves=leaves,
        rows=write(s.rows, at, row),
        notes=write(s.notes, access.block, row),
    )


def _evict(params: dict, s: _Forest, access: Access) -> tuple[_Forest, jax.Array]:
    leaves, spared, lost = tip(s.leaves, access.parent)
    others = leaves.size - jnp.where(spared == NO, 0, 1)
    return when(
        ~lost & (others > 0),
        lambda carry: _remove(params, carry[0], spared, access),
        (s._replace(leaves=leaves), access.block),
    )


def _remove(params: dict, s: _Forest, spared, access: Access):
    """Drops the leaf of the least utility; its parent may become one."""
    now = jnp.float32(access.features.step)
    rows, at = _least(params["alpha"], s.rows, s.leaves.size, spared, now)
    end = s.leaves.size - 1
    rows, last = read(rows, end)
    leaves, victim, parent, _ = drop_last(swap(s.leaves, at, end))
    notes, note = read(s.notes, parent)
    # The end holds the parent now, or nothing.
    rows = write(write(rows, at, last), end, note)
    return s._replace(leaves=leaves, rows=rows, notes=notes), victim


def _least(alpha, rows: jax.Array, count, spared, now) -> tuple[jax.Array, jax.Array]:
    """The rows, and the place of the least utility; of equals, of the oldest."""
    inf = jnp.float32(jnp.inf)
    chunks = (count + CHUNK - 1) // CHUNK

    def look(rows, i):
        rows, part = _read_chunk(rows, i * CHUNK)
        place = i * CHUNK + jnp.arange(CHUNK)
        candidate = (place < count) & (place != spared)
        return rows, part[:, WORK], part[:, LAST], place, candidate

    def widen(i, carry):
        rows, extremes = carry
        rows, work, last, _, candidate = look(rows, i)

        def joined(values, old):
            low = jnp.where(candidate, values, inf).min()
            high = jnp.where(candidate, values, -inf).max()
            return jnp.minimum(old[0], low), jnp.maximum(old[1], high)

        return rows, Extremes(joined(work, extremes.work), joined(last, extremes.last))

    extremes = Extremes((inf, -inf), (inf, -inf))
    rows, extremes = lax.fori_loop(0, chunks, widen, (rows, extremes))

    def search(i, carry):
        rows, *best = carry
        rows, work, last, place, candidate = look(rows, i)
        worth = jnp.where(candidate, utility(alpha, work, last, now, extremes), inf)
        low = worth.min()
        oldest = jnp.where(worth == low, last, inf).min()
        at = jnp.where((worth == low) & (last == oldest), place, count).min()
        wins = (low < best[0]) | ((low == best[0]) & (oldest < best[1]))
        found = zip((low, oldest, at), best, strict=True)
        return rows, *(jnp.where(wins, new, old) for new, old in found)

    carry = (rows, inf, inf, jnp.int32(0))
    rows, _, _, at = lax.fori_loop(0, chunks, search, carry)
    return rows, at


def _read_chunk(rows: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`perc.lists.read` for `CHUNK` rows."""
    part = lax.cond(
        first >= 0,
        lambda: lax.dynamic_slice(rows, (jnp.maximum(first, 0), 0), (CHUNK, 2)),
        lambda: jnp.zeros((CHUNK, 2), rows.dtype),
    )
    return lax.dynamic_update_slice(rows, part, (first, 0)), part
