"""Attention whose keys and values lie in blocks, found through a table.

    token i of a sequence lies in block table[i // block_tokens], row i % block_tokens

`perc.page_tables` says which blocks a sequence has, and what to copy before a write;
here is the data. Where the table has no block (-1) nothing is written or read. This is
the readable form; `perc.kernels` has one for a GPU.

References:
    Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with
    PagedAttention", section 4.1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from perc.attention.multihead import attend
from perc.errors import InputError


class PagedKV(NamedTuple):
    """Keys and values of C blocks of one layer."""

    keys: jax.Array  # [C, block_tokens, G, D]
    values: jax.Array  # [C, block_tokens, G, D]


def empty_blocks(
    n_blocks: int, block_tokens: int, kv_heads: int, head_size: int, dtype=jnp.float32
) -> PagedKV:
    """Blocks of zeros.

    Raises:
        InputError: if a size is not 1 or more.
    """
    shape = (n_blocks, block_tokens, kv_heads, head_size)
    if min(shape) < 1:
        raise InputError(f"blocks of shape {shape}; every size is 1 or more.")
    return PagedKV(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


@jax.jit
def write(
    data: PagedKV,
    table: jax.Array,
    start: ArrayLike,
    keys: jax.Array,
    values: jax.Array,
) -> PagedKV:
    """Writes n tokens [n, G, D] of a sequence, from its token `start` on.

    Args:
        data: C blocks.
        table: i32[L], blocks of the sequence, root first, then -1.
        start: i32[], tokens that are there already.
        keys: of the tokens.
        values: of the tokens.
    """
    n_blocks, block_tokens = data.keys.shape[:2]
    place = jnp.asarray(start) + jnp.arange(len(keys))
    index = place // block_tokens
    block = jnp.where(index < len(table), table[index], -1)
    at = (jnp.where(block >= 0, block, n_blocks), place % block_tokens)
    return PagedKV(
        data.keys.at[at].set(keys.astype(data.keys.dtype), mode="drop"),
        data.values.at[at].set(values.astype(data.values.dtype), mode="drop"),
    )


@jax.jit
def copy_block(data: PagedKV, source: ArrayLike, target: ArrayLike) -> PagedKV:
    """Copies a block, as `perc.page_tables.append` asks for; -1 copies nothing."""
    into = jnp.where(jnp.asarray(target) >= 0, target, len(data.keys))
    return PagedKV(*(x.at[into].set(x[source], mode="drop") for x in data))


@jax.jit
def attend_paged(
    data: PagedKV, queries: jax.Array, table: jax.Array, tokens: jax.Array
) -> jax.Array:
    """Outputs [S, H, D] of the last token of each of S sequences.

    Args:
        data: C blocks.
        queries: [S, H, D].
        table: i32[S, L].
        tokens: i32[S], length of each sequence; 0 gives zeros.
    """

    def one(query, row, length):
        shape = (-1, *data.keys.shape[2:])
        keys, values = data.keys[row].reshape(shape), data.values[row].reshape(shape)
        there = jnp.repeat(row >= 0, data.keys.shape[1])
        mask = there & (jnp.arange(len(keys)) < length)
        return attend(query[None], keys, values, mask[None])[0]

    return jax.vmap(one)(queries, table, tokens)
