"""A set of ranks as bits, updated in place inside compiled loops.

XLA compiles a whole loop to native code that updates its state in place, as long as it
inserts no copy of the state. `tests/test_replay_hlo.py` asserts that it does not. Two
rules keep copies away: read only through `peek`, and let every value read reach a write
of the same array.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

WORD = 32  # bits of a word; a rank's word is rank >> 5


class BitSet(NamedTuple):
    """Ranks 0..N-1; the lowest is found in a few steps."""

    words: jax.Array  # u32[N/32 + 1], one bit a rank; the last word is scratch
    tops: jax.Array  # u32[N/1024 + 1], bit = its word may be non-zero (cleared lazily)
    low: jax.Array  # i32[], no bit is set in `tops` below this word


def empty(n: int) -> BitSet:
    """A set that can hold ranks below `n`."""
    n_words = -(-n // WORD)
    return BitSet(
        jnp.zeros(n_words + 1, jnp.uint32),
        jnp.zeros(-(-n_words // WORD) + 1, jnp.uint32),
        jnp.int32(0),
    )


def remove(words: jax.Array, rank: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Takes a rank out of `BitSet.words`; says whether it was there. -1 never is."""
    word = jnp.where(rank >= 0, rank >> 5, words.shape[0] - 1)
    bit = jnp.where(rank >= 0, bit_of(rank), jnp.uint32(0))
    value = peek(words, word)
    return words.at[word].set(value & ~bit), (value & bit) != 0


def add(ranks: BitSet, rank: jax.Array, wanted: jax.Array | bool = True) -> BitSet:
    """Puts a rank in, or changes nothing where it is not wanted."""
    words, tops, low = ranks
    word, top = rank >> 5, rank >> 10
    bit, top_bit = bit_of(rank), bit_of(word)
    if wanted is not True:
        bit, top_bit = (jnp.where(wanted, b, jnp.uint32(0)) for b in (bit, top_bit))
    words = words.at[word].set(peek(words, word) | bit)
    tops = tops.at[top].set(peek(tops, top) | top_bit)
    return BitSet(words, tops, jnp.where(wanted, jnp.minimum(low, top), low))


def pop_lowest(ranks: BitSet) -> tuple[BitSet, jax.Array]:
    """One step towards the lowest rank: it leaves, or -1 and a shorter way to it.

    Call it until it gives a rank; the set must not be empty.
    """
    words, tops, low = ranks
    top = peek(tops, low)
    word = jnp.where(top != 0, low * WORD + lowest_bit(top), words.shape[0] - 1)
    value = peek(words, word)
    rest = value & (value - jnp.uint32(1))
    found = (top != 0) & (value != 0)
    words = words.at[word].set(jnp.where(found, rest, value))
    tops = tops.at[low].set(jnp.where(rest == 0, top & (top - jnp.uint32(1)), top))
    rank = jnp.where(found, word * WORD + lowest_bit(value), -1)
    return BitSet(words, tops, low + jnp.where(top == 0, 1, 0)), rank


def reachable(ranks: BitSet) -> jax.Array:
    """How many ranks `pop_lowest` would find, one after the other, i32[]."""
    words = ranks.words[:-1]
    at = jnp.arange(words.shape[0], dtype=jnp.int32)
    listed = (ranks.tops[at >> 5] & bit_of(at)) != 0
    found = jnp.where(listed & (at >> 5 >= ranks.low), words, jnp.uint32(0))
    return jnp.sum(lax.population_count(found), dtype=jnp.int32)


def peek(array: jax.Array, i: jax.Array) -> jax.Array:
    """Reads `array[i]` so that XLA cannot fuse the read with a later write.

    A plain read before a write in the same loop makes XLA copy the array each time.
    """
    return lax.cond(
        i >= 0,
        lambda: lax.dynamic_index_in_dim(array, jnp.maximum(i, 0), keepdims=False),
        lambda: jnp.zeros(array.shape[1:], array.dtype),
    )


def write(array: jax.Array, i: jax.Array, value: Any) -> jax.Array:
    """`array.at[i].set(value)` for an index in range, in fewer instructions."""
    value = jnp.asarray(value, array.dtype)
    return lax.dynamic_update_index_in_dim(array, value, i, 0)


def bit_of(rank: jax.Array) -> jax.Array:
    """The bit of a rank inside its word."""
    return jnp.uint32(1) << (rank & (WORD - 1)).astype(jnp.uint32)


def lowest_bit(word: jax.Array) -> jax.Array:
    """Index of the lowest set bit, i32[]."""
    below = (word & (~word + jnp.uint32(1))) - jnp.uint32(1)
    return lax.population_count(below).astype(jnp.int32)
