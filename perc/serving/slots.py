"""What runs: S slots, one a running request.

The KV cache of a request of `done` tokens takes ceil(done / block_tokens) blocks; those
beyond its prompt's accesses are private. Each decode step adds a token.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from perc.bitset import write
from perc.floats import Array

NOBODY = -1


class Slots(NamedTuple):
    """Running requests; where `request` is -1, nothing else counts."""

    request: jax.Array  # i32[S]
    key: jax.Array  # f64[S], its place in the queue's order
    blocks: jax.Array  # i32[S], accesses of its prompt, all of them pinned
    private: jax.Array  # i32[S], blocks beside them
    target: jax.Array  # i32[S], tokens to have before the next one can be made
    done: jax.Array  # i32[S], tokens whose keys and values are there
    chunk: jax.Array  # i32[S], tokens of the prompt that the present step computes
    made: jax.Array  # i32[S], tokens of the answer so far
    goal: jax.Array  # i32[S], tokens of the whole answer
    decoding: jax.Array  # bool[S], its prompt is done


def empty(size: int) -> Slots:
    """S empty slots."""
    none = jnp.zeros(size, jnp.int32)
    key, decoding = jnp.zeros(size, jnp.float64), jnp.zeros(size, jnp.bool_)
    return Slots._make([none - 1, key, *[none] * 7, decoding])


def put(slots: Slots, at: jax.Array, new: Slots, wanted: Array = True) -> Slots:
    """Writes the scalars of `new` to a slot, if wanted."""
    old = get(slots, at)
    return Slots(
        *(
            write(column, at, jnp.where(wanted, value, before))
            for column, value, before in zip(slots, new, old, strict=True)
        )
    )


def get(slots: Slots, at: jax.Array) -> Slots:
    """The scalars of a slot."""
    return Slots(*(get_one(column, at) for column in slots))


def get_one(column: jax.Array, at: jax.Array) -> jax.Array:
    """An entry of one column."""
    return lax.dynamic_index_in_dim(column, at, keepdims=False)


def nobody() -> Slots:
    """The scalars of an empty slot."""
    zero = jnp.int32(0)
    key, decoding = jnp.float64(0), jnp.bool_(False)
    return Slots._make([jnp.int32(NOBODY), key, *[zero] * 7, decoding])


def count(flags: jax.Array) -> jax.Array:
    """How many hold, i32[]."""
    return jnp.sum(flags, dtype=jnp.int32)


def position(flags: jax.Array) -> jax.Array:
    """The first that holds, i32[]; 0 if none does."""
    return lax.argmax(flags.astype(jnp.int32), 0, jnp.int32)


def more_private(slots: Slots, tokens: jax.Array, block_tokens: int) -> jax.Array:
    """Blocks i32[S] to get for `tokens` more tokens of each decoding request."""
    whole = -(-(slots.done + tokens) // block_tokens)
    more = jnp.maximum(whole - slots.blocks - slots.private, 0)
    return jnp.where(slots.decoding, more, 0)


def growth(slots: Slots, tokens: jax.Array, block_tokens: int) -> jax.Array:
    """All of them together, i32[]."""
    return jnp.sum(more_private(slots, tokens, block_tokens), dtype=jnp.int32)


def last_in_line(slots: Slots) -> jax.Array:
    """The slot of the running request with the largest key, the first to give way."""
    key = jnp.where(slots.request >= 0, slots.key, -jnp.inf)
    return lax.argmax(key, 0, jnp.int32)
