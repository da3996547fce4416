"""Through a table of blocks as in one piece, forks and copies included."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc import page_tables
from perc.attention.multihead import causal
from perc.attention.paged import attend_paged, copy_block, empty_blocks, write
from perc.errors import InputError
from tests.attention.given import qkv
from tests.oracles import attention as oracle

BLOCK, COLUMNS = 4, 5


@settings(deadline=None, max_examples=15)
@given(
    st.integers(0, 99),
    st.permutations(range(10)),
    st.integers(1, 13),
    st.integers(1, 13),
)
def test_contiguous_through_a_permuted_table(seed, blocks, first, second):
    """Two sequences, written in two pieces; the last blocks may be partial."""
    data = empty_blocks(10, BLOCK, 2, 6)
    tables = np.full((2, COLUMNS), -1, np.int32)
    tables[0, :4], tables[1, :4] = blocks[:4], blocks[4:8]
    texts = [qkv(seed + s, n, 4, 2, 6) for s, n in enumerate((first, second))]
    for row, (_, k, v) in zip(tables, texts, strict=True):
        cut = len(k) // 3
        data = write(data, row, 0, k[:cut], v[:cut])
        data = write(data, row, cut, k[cut:], v[cut:])
    queries = np.stack([q[-1] for q, _, _ in texts])
    found = attend_paged(data, queries, tables, jnp.array([first, second]))
    for out, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(out, oracle.causal(*text)[-1], atol=1e-5)


def test_a_fork_reads_what_it_shares_and_writes_its_own_copy():
    cache = page_tables.empty_tables(8, sequences=2, blocks_per_sequence=3)
    cache, _ = page_tables.append(cache, 0, 6, block_tokens=BLOCK)
    q, k, v = qkv(0, 7, 2, 1, 4)
    data = write(empty_blocks(8, BLOCK, 1, 4), cache.table[0], 0, k[:6], v[:6])
    cache, _ = page_tables.fork(cache, 0, 1)
    ends = {0: k[6:], 1: -k[6:]}
    for row, last in ends.items():
        cache, written = page_tables.append(cache, row, 1, block_tokens=BLOCK)
        data = copy_block(data, written.copied_from, written.copied_to)
        data = write(data, cache.table[row], 6, last, v[6:])
    assert (cache.table[0] != cache.table[1]).tolist() == [False, True, False]
    found = attend_paged(data, np.stack([q[-1]] * 2), cache.table, cache.tokens)
    for row, last in ends.items():
        full = causal(q, np.concatenate([k[:6], last]), v)[-1]
        np.testing.assert_allclose(found[row], full, atol=1e-5)


def test_what_has_no_block_is_neither_written_nor_read():
    _, k, v = qkv(1, 9, 1, 1, 2)
    data = empty_blocks(2, BLOCK, 1, 2)
    table = jnp.array([0, -1])
    for row in (table, table[:1]):
        data = write(data, row, 0, k, v)  # 4 of 9 tokens have a block
        np.testing.assert_array_equal(data.keys[0], k[:4])
        np.testing.assert_array_equal(data.keys[1], 0)
    out = attend_paged(data, k[:2], jnp.stack([table] * 2), jnp.array([9, 0]))
    np.testing.assert_allclose(
        out[0], oracle.causal(k[[3, 3, 3, 0]], k[:4], v[:4])[3], atol=1e-5
    )
    np.testing.assert_array_equal(out[1], 0)
    same = copy_block(data, -1, -1)
    np.testing.assert_array_equal(same.keys, data.keys)


def test_bad_sizes():
    with pytest.raises(InputError, match="every size is 1 or more"):
        empty_blocks(1, 0, 1, 2)
