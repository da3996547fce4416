"""What holds of vLLM's block pool with perc's queue in it, whatever requests do.

`order` is what the queue's `get_all_free_blocks` returns.
"""


def free_is_what_nobody_uses(manager, order):
    """Each block is free or used, none stands twice, and the bridge has not failed."""
    pool, queue = manager.pool, manager.queue
    free = {b.block_id for b in pool.blocks if b.ref_cnt == 0 and not b.is_null}
    assert len(order) == len(free) == queue.num_free_blocks
    assert {block.block_id for block in order} == free
    assert pool.null_block not in order
    assert manager.failures == 0


def blocks_without_a_hash_leave_first(order, emptied=frozenset()):
    """But for `emptied`, ids of blocks that a reset has left without a hash."""
    cached = [b.block_hash is not None for b in order if b.block_id not in emptied]
    assert cached == sorted(cached)


def the_listed_leave(order, taken, hit):
    """`taken`, ids in their order, headed the listed order but for blocks hit before.

    Only where prices are of the moment, not up to `stale_s` old.
    """
    left = [block.block_id for block in order if block.block_id not in hit]
    assert taken == left[: len(taken)]


def cached_names(manager):
    """Hashes of the blocks with content, as requests have them."""
    table = manager.pool.cached_block_hash_to_block
    return {name[:-4] for name in table._cache}  # without the cache group


def no_cached_block_has_lost_its_parent(manager, parent):
    """`parent` has the hash before each hash that a request has had."""
    names = cached_names(manager)
    assert all(parent.get(name, name) in names for name in names)


def the_list_reads_as_vllm_sets_it(queue, order):
    """Code that walks vLLM's linked list finds the same blocks."""
    block, found = queue.fake_free_list_head.next_free_block, []
    while block.block_id >= 0:
        found.append(block)
        block = block.next_free_block
    assert found == order == list(queue.iter_blocks_after(None))
