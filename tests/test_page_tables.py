"""Block tables: every sequence reads what it wrote, whoever shares its blocks."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from perc import page_tables, paging
from perc.errors import InputError

BLOCKS, ROWS, WIDTH, BLOCK_TOKENS = 9, 4, 3, 2
ROW = st.integers(0, ROWS - 1)


def append(cache, row, tokens):
    return page_tables.append(cache, row, tokens, block_tokens=BLOCK_TOKENS)


class TableMachine(RuleBasedStateMachine):
    """Each token is a number of its own; memory is what the events say it is.

    A sequence is known by its tokens, and a full block by all tokens up to its end.
    """

    def __init__(self):
        super().__init__()
        self.cache = page_tables.empty_tables(
            BLOCKS, sequences=ROWS, blocks_per_sequence=WIDTH, pinned_blocks=1
        )
        self.memory = np.zeros((BLOCKS, BLOCK_TOKENS), int)
        self.text: list[list[int]] = [[] for _ in range(ROWS)]
        self.next_token = 1
        self.keys: dict[tuple[int, ...], int] = {}

    @initialize(tokens=st.integers(1, 5), ended=st.booleans())
    def begin(self, tokens, ended):
        """A sequence whose blocks a look-up finds, the partial one too."""
        self.write(0, tokens)
        self.publish(0, True)
        if ended:
            self.end(0)

    def key_of(self, text) -> int:
        return self.keys.setdefault(tuple(text), len(self.keys))

    def full_texts(self) -> list[tuple[int, ...]]:
        return [text for text in self.keys if len(text) % BLOCK_TOKENS == 0]

    @rule(row=ROW, tokens=st.integers(0, 5))
    def write(self, row, tokens):
        before = self.cache
        text = self.text[row]
        old, new = (-(-n // BLOCK_TOKENS) for n in (len(text), len(text) + tokens))
        # A partial block is written in place if nobody else reads or finds it.
        copies = 0
        if tokens and len(text) % BLOCK_TOKENS:
            tables = before.table.tolist()
            last = tables[row][old - 1]
            shared = sum(last in table for table in tables)
            copies = int(shared > 1 or before.pool.key.tolist()[last] >= 0)
        free = int(paging.census(before.pool).free)
        self.cache, written = append(before, row, tokens)
        fits = new <= WIDTH and new - old + copies <= free
        assert bool(written.sufficient) == fits
        if not fits:
            chex.assert_trees_all_equal(self.cache, before)
            assert int(written.new_blocks) == 0 and int(written.copied_to) == -1
            return
        assert int(written.new_blocks) == new - old + copies
        assert (int(written.copied_from) >= 0) == (copies == 1)
        if copies:
            source, target = int(written.copied_from), int(written.copied_to)
            self.memory[target] = self.memory[source]
        blocks = self.cache.table.tolist()[row]
        for _ in range(tokens):
            at, offset = divmod(len(text), BLOCK_TOKENS)
            self.memory[blocks[at], offset] = self.next_token
            text.append(self.next_token)
            self.next_token += 1

    @rule(parent=ROW, child=ROW)
    def fork(self, parent, child):
        before = self.cache
        self.cache, done = page_tables.fork(before, parent, child)
        assert bool(done) == (not self.text[child])
        if not done:
            chex.assert_trees_all_equal(self.cache, before)
            return
        self.text[child] = list(self.text[parent])
        assert self.cache.table[child].tolist() == before.table[parent].tolist()
        if parent != child:
            used = paging.census(before.pool).used
            assert paging.census(self.cache.pool).used == used  # nothing is copied

    @rule(row=ROW)
    def end(self, row):
        self.cache = page_tables.end(self.cache, row)
        self.text[row] = []

    @rule(row=ROW, partial=st.booleans())
    def publish(self, row, partial):
        """Names the blocks of a sequence, its partial last one perhaps too."""
        text = self.text[row]
        step = BLOCK_TOKENS
        ends = list(range(step, len(text) + 1, step))
        ends += [len(text)] if partial and len(text) % step else []
        keys = [self.key_of(text[:end]) for end in ends]
        keys += [-1] * (WIDTH - len(keys))
        table = np.asarray(self.cache.table)[row]
        pool, _ = paging.name(self.cache.pool, table, np.array(keys, np.int32))
        self.cache = self.cache._replace(pool=pool)

    @precondition(lambda self: self.full_texts())
    @rule(row=ROW, data=st.data())
    def resume(self, row, data):
        """A prompt that was written before, found as far as its full blocks are."""
        prompt = data.draw(st.sampled_from(self.full_texts()))
        ends = range(BLOCK_TOKENS, len(prompt) + 1, BLOCK_TOKENS)
        keys = [self.keys.get(prompt[:end], -1) for end in ends]
        keys = np.array(keys + [-1] * (WIDTH - len(keys)), np.int32)
        before = self.cache
        self.cache, found = page_tables.begin(
            before, row, keys, block_tokens=BLOCK_TOKENS
        )
        if self.text[row]:
            assert int(found) == 0
            chex.assert_trees_all_equal(self.cache, before)
            return
        self.text[row] = list(prompt[: int(found) * BLOCK_TOKENS])

    @invariant()
    def every_sequence_reads_its_text(self):
        table = np.asarray(self.cache.table)
        assert self.cache.tokens.tolist() == [len(text) for text in self.text]
        for row, text in enumerate(self.text):
            blocks = -(-len(text) // BLOCK_TOKENS)
            assert (table[row, :blocks] >= 0).all() and (table[row, blocks:] < 0).all()
            assert (
                self.memory[table[row, :blocks]].ravel()[: len(text)].tolist() == text
            )

    @invariant()
    def references_are_those_of_the_rows(self):
        table = np.asarray(self.cache.table)
        refs = np.bincount(table[table >= 0], minlength=BLOCKS)
        assert self.cache.pool.refs.tolist() == refs.tolist()
        free, used, pinned, *_ = map(int, paging.census(self.cache.pool))
        assert free + used + pinned == BLOCKS and pinned == 1


TestTables = TableMachine.TestCase
TestTables.settings = settings(deadline=None, max_examples=25, stateful_step_count=20)


def test_a_fork_shares_all_blocks_and_a_write_copies_exactly_one():
    """The values of script 11: a shared last block is copied, once."""
    cache = page_tables.empty_tables(8, sequences=2, blocks_per_sequence=4)
    cache, _ = append(cache, 0, 5)
    cache, _ = page_tables.fork(cache, 0, 1)
    assert cache.pool.refs.tolist() == [2, 2, 2, 0, 0, 0, 0, 0]
    cache, written = append(cache, 1, 1)
    assert written[1:4] == (1, 2, 3)  # one new block, from 2 to 3
    assert cache.table[:, :3].tolist() == [[0, 1, 2], [0, 1, 3]]
    assert cache.pool.refs.tolist() == [2, 2, 1, 1, 0, 0, 0, 0]
    cache, written = append(cache, 0, 1)  # now the last reader: in place
    assert written[1:4] == (0, -1, -1)
    cache = page_tables.end(page_tables.end(cache, 0), 1)
    assert int(paging.census(cache.pool).free) == 8


def test_a_last_block_that_a_look_up_finds_is_copied_before_it_is_written():
    """One reader only, but the cache promises what the block holds."""
    cache = page_tables.empty_tables(4, sequences=1, blocks_per_sequence=2)
    cache, _ = append(cache, 0, 1)
    pool, _ = paging.name(cache.pool, cache.table[0], np.array([5, -1]))
    cache, written = append(cache._replace(pool=pool), 0, 1)
    assert written[1:4] == (1, 0, 1)
    assert paging.look_up(cache.pool, np.array([5])).tolist() == [0]
    assert int(paging.census(cache.pool).cached) == 1


def test_a_write_that_evicts_says_which_key_went():
    cache = page_tables.empty_tables(1, sequences=2, blocks_per_sequence=1)
    cache, _ = append(cache, 0, 2)
    pool, _ = paging.name(cache.pool, cache.table[0], jnp.array([5]))
    cache = page_tables.end(cache._replace(pool=pool), 0)
    cache, written = append(cache, 1, 1)
    assert written.removed.tolist() == [5]


def test_tables_have_rows_and_columns():
    for sizes in ((0, 1), (1, 0)):
        with pytest.raises(InputError, match="give 1 or more"):
            page_tables.empty_tables(
                4, sequences=sizes[0], blocks_per_sequence=sizes[1]
            )
