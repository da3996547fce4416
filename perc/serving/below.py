"""The blocks below the GPU, and the links to them.

Each tier is a set of ranks like the pool's: what has the lowest rank leaves first, down
to the next tier, or out of the last one.

    stored = gone + taken + there     blocks of each tier
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import BitSet, add, empty, peek, pop_lowest, remove, write
from perc.floats import Array
from perc.roofline import Roofline
from perc.serving.offload import TierRules

WHERE, RANK, USES = 0, 1, 2  # columns of `Below.rows`
READ, WRITE = 0, 1  # directions of a link
MOST_USES = 7  # blocks of more uses count as if of so many


class Below(NamedTuple):
    """What the tiers hold and did; T tiers, S slots, R requests, M blocks."""

    sets: tuple[BitSet, ...]  # T, of ranks
    rows: jax.Array  # i32[M, 4]: tier (-1 = none), rank, requests that used it, unused
    landed_s: jax.Array  # f64[M], when the block is there
    size: jax.Array  # i32[T]
    free_s: jax.Array  # f64[T, 2], when the link has carried all that was asked of it
    busy_s: jax.Array  # f64[T, 2]
    stored: jax.Array  # i64[T], blocks that came
    gone: jax.Array  # i64[T], that had to leave
    taken: jax.Array  # i64[T], that were moved up
    read: jax.Array  # i64[T], that were read, moved or not
    hits: jax.Array  # i64[T], that were read for requests on their first admission
    seen: jax.Array  # i64[MOST_USES + 2], blocks that reached so many uses
    declined: jax.Array  # i64[], blocks that were computed though they were there
    ready_s: jax.Array  # f64[S], when the slot's blocks are loaded
    loading: jax.Array  # i32[S, 2], accesses first..last that become readable then
    wait_s: jax.Array  # f64[R], from admission until they were
    loaded: jax.Array  # i32[R], blocks on the first admission
    stall_s: jax.Array  # f64[], that the engine did nothing but wait for loads


def nothing_below(
    tiers: int, accesses: int, blocks: int, slots: int, requests: int
) -> Below:
    """Empty tiers."""
    none, zeros = jnp.zeros(tiers, jnp.int64), jnp.zeros((tiers, 2), jnp.float64)
    return Below(
        sets=tuple(empty(accesses) for _ in range(tiers)),
        rows=jnp.zeros((blocks, 4), jnp.int32).at[:, WHERE].set(-1),
        landed_s=jnp.zeros(blocks, jnp.float64),
        size=jnp.zeros(tiers, jnp.int32),
        free_s=zeros,
        busy_s=zeros,
        stored=none,
        gone=none,
        taken=none,
        read=none,
        hits=none,
        seen=jnp.zeros(MOST_USES + 2, jnp.int64),
        declined=jnp.int64(0),
        ready_s=jnp.zeros(slots, jnp.float64),
        loading=jnp.zeros((slots, 2), jnp.int32),
        wait_s=jnp.zeros(requests, jnp.float64),
        loaded=jnp.zeros(requests, jnp.int32),
        stall_s=jnp.float64(0.0),
    )


def carry(below: Below, how: TierRules, t: int, way: int, after_s, wanted: Array):
    """Sends a block over a link: Below, and when it is there f64[]."""
    lane = jnp.where(how.duplex[t], way, READ)
    free = below.free_s[t, lane]
    done = jnp.maximum(after_s, free) + how.block_s[t]
    sent = jnp.where(wanted, how.block_s[t], 0.0)
    below = below._replace(
        free_s=below.free_s.at[t, lane].set(jnp.where(wanted, done, free)),
        busy_s=below.busy_s.at[t, way].add(sent),
    )
    return below, done + how.latency_s[t]


def put_in(
    below: Below,
    how: TierRules,
    by_rank: jax.Array,
    t: int,
    block: jax.Array,
    rank: jax.Array,
    now_s: jax.Array,
    there_s: jax.Array,
    wanted: Array,
) -> Below:
    """Puts a block that is in no tier into tier `t`; what has no room moves down.

    Args:
        below: the tiers.
        how: their rules.
        by_rank: i32[N, 2], block and depth by rank.
        t: the tier, a Python number.
        block: i32[].
        rank: i32[], of the block.
        now_s: f64[], when what it drives out may move.
        there_s: f64[], when it is there.
        wanted: False changes nothing.
    """
    one = jnp.asarray(wanted).astype(jnp.int32)
    row = peek(below.rows, block)
    new = row.at[WHERE].set(t).at[RANK].set(rank)
    ranks = add(below.sets[t], jnp.maximum(rank, 0), wanted)
    size = below.size[t] + one
    over = size > how.capacity[t]
    ranks, victim = lax.while_loop(
        lambda carried: over & (carried[1] < 0),
        lambda carried: pop_lowest(carried[0]),
        (ranks, jnp.int32(-1)),
    )
    landed = peek(below.landed_s, block)
    below = below._replace(
        sets=(*below.sets[:t], ranks, *below.sets[t + 1 :]),
        rows=write(below.rows, block, jnp.where(wanted, new, row)),
        landed_s=write(below.landed_s, block, jnp.where(wanted, there_s, landed)),
        size=below.size.at[t].set(size - over.astype(jnp.int32)),
        stored=below.stored.at[t].add(one),
        gone=below.gone.at[t].add(over.astype(jnp.int32)),
    )
    return _move_down(below, how, by_rank, t, victim, over, now_s)


def _move_down(below, how, by_rank, t, victim, wanted, now_s) -> Below:
    """A victim of tier `t` goes to the next, once it has landed, or is gone."""
    block = peek(by_rank, victim)[0]
    row = peek(below.rows, block)
    out = row.at[WHERE].set(-1)
    below = below._replace(rows=write(below.rows, block, jnp.where(wanted, out, row)))
    if t + 1 == len(below.sets):
        return below
    after_s = jnp.maximum(now_s, peek(below.landed_s, block))
    below, there_s = carry(below, how, t + 1, WRITE, after_s, wanted)
    below = put_in(below, how, by_rank, t + 1, block, victim, now_s, there_s, wanted)
    return below


def take_out(below: Below, block: jax.Array, wanted: Array) -> Below:
    """A block leaves its tier for a faster one."""
    row = peek(below.rows, block)
    sets, size, taken = [], below.size, below.taken
    for t, ranks in enumerate(below.sets):
        here = wanted & (row[WHERE] == t)
        words, _ = remove(ranks.words, jnp.where(here, row[RANK], -1))
        sets.append(ranks._replace(words=words))
        size = size.at[t].add(-here.astype(jnp.int32))
        taken = taken.at[t].add(here.astype(jnp.int64))
    new = jnp.where(wanted, row.at[WHERE].set(-1), row)
    return below._replace(
        sets=tuple(sets), rows=write(below.rows, block, new), size=size, taken=taken
    )


def rank_anew(below: Below, block: jax.Array, rank: jax.Array, wanted: Array) -> Below:
    """A block that stays was used: it has another rank from now on."""
    row = peek(below.rows, block)
    sets = []
    for t, ranks in enumerate(below.sets):
        here = wanted & (row[WHERE] == t)
        words, _ = remove(ranks.words, jnp.where(here, row[RANK], -1))
        sets.append(add(ranks._replace(words=words), jnp.maximum(rank, 0), here))
    new = jnp.where(wanted, row.at[RANK].set(rank), row)
    return below._replace(sets=tuple(sets), rows=write(below.rows, block, new))


def count_uses(below: Below, block_of: jax.Array, start, stop) -> Below:
    """One request more used the blocks of accesses start..stop-1."""

    def count(i, carried):
        rows, seen = carried
        block = peek(block_of, i)
        row = peek(rows, block)
        uses = row[USES] + 1
        rows = write(rows, block, row.at[USES].set(uses))
        return rows, seen.at[jnp.minimum(uses, MOST_USES + 1)].add(1)

    rows, seen = lax.fori_loop(start, stop, count, (below.rows, below.seen))
    return below._replace(rows=rows, seen=seen)


def store(
    below: Below,
    how: TierRules,
    by_rank: jax.Array,
    cost: Roofline,
    block_tokens: int,
    rank: jax.Array,
    now_s: jax.Array,
    wanted: Array,
) -> Below:
    """Writes a block of the GPU to the first tier, unless it is below or not worth it.

    The block is that of a rank, i32[]; -1 writes nothing.
    """
    block, depth = peek(by_rank, rank)
    row = peek(below.rows, block)
    worth = ~how.likely | _pays(below, how, cost, block_tokens, row[USES], depth)
    wanted = wanted & (rank >= 0) & (row[WHERE] < 0) & worth
    below, there_s = carry(below, how, 0, WRITE, now_s, wanted)
    return put_in(below, how, by_rank, 0, block, rank, now_s, there_s, wanted)


def _pays(below, how, cost, block_tokens, uses, depth) -> jax.Array:
    """Whether a reload is expected to save more than writing takes, bool[].

    A block of u uses is used again in (1 + blocks that reached u + 1 uses) of (2 +
    blocks that reached u) cases: Laplace's rule, on what was seen so far. An answer's
    block, which nobody has asked for yet, counts as used once.
    """
    u = jnp.clip(uses, 1, MOST_USES)
    share = jnp.minimum((below.seen[u + 1] + 1) / (below.seen[u] + 2), 1.0)
    first = depth * block_tokens
    recompute_s = cost.prefill_flops(first + block_tokens, first) / cost.flops_per_s
    move_s = how.block_s[0] + how.latency_s[0]
    return share * (recompute_s - move_s) > move_s
