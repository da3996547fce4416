"""A prefix is hit where it is still there, not where its blocks are free again."""

import jax.numpy as jnp
from hypothesis import given, settings
from hypothesis import strategies as st

from perc import paging
from perc.prefix_hits import check_claim, count_claim, empty_tally

BLOCKS = 6


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=6), st.data())
def test_against_a_diary_of_who_wrote_what(others, data):
    """Requests write and leave; each block's last writer is kept beside the pool."""
    pool, given = paging.allocate(paging.empty_pool(BLOCKS), 4)
    keys = jnp.array([0, 1, 2, 3, -1, -1])
    pool, _ = paging.name(pool, given.blocks, keys)
    pool = paging.release(pool, given.blocks)
    writer = {block: "me" for block in given.blocks[:4].tolist()}
    held = set()
    for number, (n, leaves) in enumerate(others):
        pool, got = paging.allocate(pool, n)
        blocks = [block for block in got.blocks.tolist() if block >= 0]
        writer |= dict.fromkeys(blocks, "another")
        if not leaves:
            held |= set(blocks)
            continue
        if data.draw(st.booleans()):
            names = 10 + 4 * number + jnp.arange(BLOCKS)
            pool, _ = paging.name(pool, got.blocks, names)
        pool = paging.release(pool, got.blocks)
    claim = check_claim(pool, given.blocks, keys)
    mine = [writer[block] == "me" for block in given.blocks[:4].tolist()]
    free = [block not in held for block in given.blocks[:4].tolist()]
    owned = (mine + [False]).index(False)
    assert int(claim.owned) == owned
    assert int(claim.stale) == (free + [False]).index(False) - owned
    assert bool(claim.whole) == all(mine)


def test_a_prefix_in_use_by_another_is_owned_all_the_same():
    pool, given = paging.allocate(paging.empty_pool(3), 2)
    keys = jnp.array([5, 6, -1])
    pool, _ = paging.name(pool, given.blocks, keys)
    claim = check_claim(pool, given.blocks, keys)
    assert (int(claim.owned), int(claim.stale), bool(claim.whole)) == (2, 0, True)


def test_nothing_is_claimed_without_keys_or_blocks():
    pool = paging.empty_pool(3)
    none = jnp.array([-1, -1])
    assert bool(check_claim(pool, none, none).whole)
    found = check_claim(pool, jnp.array([0, 99]), jnp.array([-1, -1]))
    assert (int(found.owned), int(found.stale)) == (0, 1)  # block 99 does not exist
    tally = count_claim(empty_tally(), found, jnp.array([0, 99]))
    assert [int(n) for n in tally] == [1, 0, 2, 0, 1]
