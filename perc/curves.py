"""LRU at every capacity, exactly, in one pass over the trace.

LRU is a stack algorithm: a cache of C blocks holds the C most recent ones. So an
access hits exactly if its *stack distance*, the number of blocks at least as recent as
the accessed one, is at most C. Inside a request the root counts as most recent, which
makes distances grow along a prompt: the blocks that hit are a leading run by
themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import WORD, bit_of, peek
from perc.ranks import lru_ranks
from perc.shapes import pad
from perc.types import Trace

NEVER_HITS = np.iinfo(np.int32).max


def lru_distances(trace: Trace) -> np.ndarray:
    """Smallest capacity in blocks at which LRU hits each access.

    Returns:
        i32[N]; `NEVER_HITS` for the first access of a block.

    References:
        Mattson et al. 1970 for stack distances; Fenwick 1994 for the counting tree.
    """
    if not trace.n_accesses:
        return np.zeros(0, np.int32)
    position = lru_ranks(trace)  # on the time line
    before = np.where(trace.prev >= 0, position[trace.prev], -1).astype(np.int32)
    found = _distances(
        jnp.asarray(pad(before, -1)),
        jnp.asarray(pad(position, 0)),
        trace.n_accesses,
    )
    found = np.asarray(found)[: trace.n_accesses]
    return np.where(trace.prev >= 0, found, NEVER_HITS)


def lru_distances_parallel(trace: Trace) -> np.ndarray:
    """The same as `lru_distances`, as sorts and sums over whole arrays: for GPUs.

    With `S` the first position of an access's request and `P` the position of its
    block before, the blocks at least as recent are the positions `t` from P to S - 1
    that saw their block for the first time since P:

        distance = #{t < S : position before t < P} - P

    Returns:
        i32[N], equal to `lru_distances`.

    References:
        Claude and Navarro 2012, "The wavelet matrix", for counting what is smaller in
        a prefix with one pass a bit.
    """
    if not trace.n_accesses:
        return np.zeros(0, np.int32)
    position = lru_ranks(trace)
    before = np.where(trace.prev >= 0, position[trace.prev], -1).astype(np.int32)
    by_position = np.empty_like(before)
    by_position[position] = before
    ends = trace.start[trace.request].astype(np.int32)
    smaller = _count_smaller(
        jnp.asarray(pad(by_position + 1, 0)),
        jnp.asarray(pad(ends, 0)),
        jnp.asarray(pad(before + 1, 0)),
    )
    found = np.asarray(smaller)[: trace.n_accesses] - before
    return np.where(trace.prev >= 0, found, NEVER_HITS).astype(np.int32)


@jax.jit
def _count_smaller(values: jax.Array, ends: jax.Array, limits: jax.Array) -> jax.Array:
    """For each query, how many of `values[:end]` are below `limit`: i32[N]."""
    bits = max(values.shape[0].bit_length(), 1)

    def by_bit(carry, bit):
        values, low, high, count = carry
        one = (values >> bit) & 1
        zeros = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(1 - one)])
        # Stable partition by this bit: zeros first.
        place = jnp.where(one == 0, zeros[:-1], zeros[-1] + _index(values) - zeros[:-1])
        up = ((limits >> bit) & 1) == 1
        low0, high0 = zeros[low], zeros[high]
        count = count + jnp.where(up, high0 - low0, 0)
        low = jnp.where(up, zeros[-1] + low - low0, low0)
        high = jnp.where(up, zeros[-1] + high - high0, high0)
        return (jnp.zeros_like(values).at[place].set(values), low, high, count), None

    start = (values, jnp.zeros_like(ends), ends, jnp.zeros_like(ends))
    order = jnp.arange(bits - 1, -1, -1, dtype=jnp.int32)
    return lax.scan(by_bit, start, order)[0][3]


def _index(values: jax.Array) -> jax.Array:
    return jnp.arange(values.shape[0], dtype=jnp.int32)


def lru_curve(
    trace: Trace, *, weights: np.ndarray | None = None, warmup_requests: int = 0
) -> np.ndarray:
    """Hits of LRU at every capacity from 0 to M blocks.

    Args:
        trace: N accesses of M distinct blocks.
        weights: [N], what a hit counts; None counts blocks.
        warmup_requests: the first ones fill the cache and count nothing.

    Returns:
        i64[M + 1] or f64[M + 1]: the sum of hits at capacity 0, 1, ..., M.
    """
    distance = lru_distances(trace)
    counted = (distance != NEVER_HITS) & (trace.request >= warmup_requests)
    weight = None if weights is None else np.asarray(weights)[counted]
    return np.cumsum(
        np.bincount(distance[counted], weights=weight, minlength=trace.n_blocks + 1)
    )


@jax.jit
def _distances(before: jax.Array, position: jax.Array, n: jax.Array) -> jax.Array:
    """Moves each block from its old to its new position and counts what lies above.

    The time line is a bit set, one bit a resident position, with a Fenwick tree over
    the population counts of its words.
    """
    n_words = -(-before.shape[0] // WORD)

    def move(i, carry):
        words, tree, alive, out = carry
        old, new = before[i], position[i]
        seen = old >= 0
        word = jnp.where(seen, old >> 5, n_words)
        bit = jnp.where(seen, bit_of(old), jnp.uint32(0))
        value = peek(words, word)
        below = lax.population_count(value & (bit - jnp.uint32(1))).astype(jnp.int32)
        words = words.at[word].set(value & ~bit)
        new_word = new >> 5
        words = words.at[new_word].set(peek(words, new_word) | bit_of(new))
        under, tree = _prefix(tree, word)
        out = out.at[i].set(jnp.where(seen, alive - under - below, 0))
        # The tree must see the prefix before it changes: start from its result.
        tree = _add(tree, jnp.where(seen & (under >= 0), word, n_words), -1)
        tree = _add(tree, new_word, 1)
        return words, tree, alive + jnp.where(seen, 0, 1), out

    carry = (
        jnp.zeros(n_words + 1, jnp.uint32),
        jnp.zeros(n_words + 1, jnp.int32),
        jnp.int32(0),
        jnp.zeros(before.shape[0], jnp.int32),
    )
    return lax.fori_loop(0, n, move, carry)[3]


def _prefix(tree: jax.Array, word: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Bits in the words before `word`. Returns the tree too, as it was."""

    def climb(carry):
        j, total, tree = carry
        value = peek(tree, j)
        return j & (j - 1), total + value, tree.at[j].set(value)

    _, total, tree = lax.while_loop(
        lambda carry: carry[0] > 0, climb, (word, jnp.int32(0), tree)
    )
    return total, tree


def _add(tree: jax.Array, word: jax.Array, by: int) -> jax.Array:
    """Adds to the count of `word`; nothing happens beyond the last word."""

    def climb(carry):
        j, tree = carry
        return j + (j & -j), tree.at[j].set(peek(tree, j) + by)

    return lax.while_loop(
        lambda carry: carry[0] < tree.shape[0], climb, (word + 1, tree)
    )[1]
