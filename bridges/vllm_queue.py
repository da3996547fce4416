"""vLLM's free block queue in a policy's order, with vLLM's own as the safety net.

The queue has the methods of vLLM's `FreeKVCacheBlockQueue` and takes its place in a
`BlockPool`. Whatever goes wrong inside, vLLM's own queue takes over with the blocks
that are free, one warning is logged, and no request fails.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perc.bridges.live import LiveCache
from perc.bridges.orders import LruOrder, order_of
from perc.bridges.settings import Settings
from perc.bridges.uses import Facts

logger = logging.getLogger("vllm.perc")  # below vLLM's own, so that it is shown
Block = Any  # vllm.v1.core.kv_cache_utils.KVCacheBlock
BLOCK_TOKENS = 16  # where the pool does not say it


class PolicyQueue:
    """Free blocks of one pool; `stock` makes vLLM's own queue of a list of blocks.

    `free` are those of them that have no content and that nobody uses, all by default.
    """

    def __init__(
        self,
        blocks: list[Block],
        settings: Settings,
        stock: Callable[[list[Block]], Any],
        free: Sequence[Block] | None = None,
    ):
        self.settings = settings
        self.failures = 0
        self._stock = stock
        self._blocks = blocks
        self._view: Any = None  # vLLM's queue of the same blocks, until they change
        self._pulled: list[int] = []  # used again; the cache hears of them together
        # vLLM's queue, once ours has failed.
        self._own: Any = None
        size = max((block.block_id for block in blocks), default=0) + 1
        self._by_id: list[Any] = [None] * size
        for block in blocks:
            self._by_id[block.block_id] = block
        pool = getattr(blocks[0], "pool", None) if blocks else None
        tokens = getattr(pool, "hash_block_size", BLOCK_TOKENS)
        order = order_of(
            settings.policy,
            size,
            tokens,
            stale_s=settings.stale_s,
            memory=settings.memory,
        )
        self.wants_requests = not isinstance(order, LruOrder)
        self.cache = LiveCache(order, size)
        self._stands = self.cache.stands
        free = blocks if free is None else free
        self.cache.blank([block.block_id for block in free])

    # What a bridge tells it.

    def finished(self, facts: Facts, blocks: Sequence[Block]) -> None:
        """A request is about to give back its blocks, root first."""
        if self._own is not None:
            return
        try:
            names = [block._block_hash for block in blocks]
            ids = [block.block_id for block in blocks]
            if not all(names):  # the last block has none, mostly
                full = [i for i, name in enumerate(names) if name is not None]
                ids, names = [ids[i] for i in full], [names[i] for i in full]
            self._settle()
            self.cache.finished(facts, ids, names, self.settings.clock())
        except Exception as error:
            self.fall_back(error)

    # What vLLM's pool asks of it.

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody uses."""
        if self._own is None:
            return self.cache.free - len(self._pulled)
        return self._own.num_free_blocks

    def popleft(self) -> Block:
        """The next block to be used.

        Raises:
            ValueError: if none is free.
        """
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Block]:
        """The next `n` blocks to be used, of `num_free_blocks` or fewer."""
        assert self.num_free_blocks >= n
        if self._own is None:
            try:
                self._settle()
                ids = self.cache.take(n, self.settings.clock())
                return list(map(self._by_id.__getitem__, ids))
            except Exception as error:
                self.fall_back(error)
        return self._own.popleft_n(n)

    def remove(self, block: Block) -> None:
        """A free block is used again.

        Raises:
            RuntimeError: if it is not free.
        """
        if self._own is None:
            if self._view is not None:
                self._unlink()
            if self._stands[block.block_id] is not None:
                return self._pulled.append(block.block_id)
            raise RuntimeError(f"remove() called on an invalid block: {block}")
        return self._own.remove(block)

    def append(self, block: Block) -> None:
        """A block is used by nobody any more."""
        self.append_n([block])

    def append_n(self, blocks: list[Block]) -> None:
        """Blocks with content are used by nobody any more, deepest first."""
        if not blocks:
            return
        if self._own is None:
            try:
                self._settle()
                ids = [block.block_id for block in blocks]
                return self.cache.freed(ids, self._hash_of, self.settings.clock())
            except Exception as error:
                self.fall_back(error)
        self._own.append_n([b for b in blocks if b.prev_free_block is None])

    def prepend_n(self, blocks: list[Block]) -> None:
        """Blocks without content are free; they are used before all others."""
        if not blocks:
            return
        if self._own is None:
            try:
                self._settle()
                return self.cache.blank([block.block_id for block in blocks])
            except Exception as error:
                self.fall_back(error)
        self._own.prepend_n([b for b in blocks if b.prev_free_block is None])

    def get_all_free_blocks(self) -> list[Block]:
        """Free blocks, in the order in which they would be used."""
        if self._own is None:
            try:
                self._settle()
                now_s = self.settings.clock()
                return [self._by_id[i] for i in self.cache.in_order(now_s)]
            except Exception as error:
                self.fall_back(error)
        return self._own.get_all_free_blocks()

    def iter_blocks_after(self, cursor: Block | None) -> Iterator[Block]:
        """Free blocks behind one of them, in the order in which they would be used."""
        blocks = self.get_all_free_blocks()
        start = 0 if cursor is None else blocks.index(cursor) + 1
        return iter(blocks[start:])

    # Views for code that walks vLLM's linked list.

    @property
    def fake_free_list_head(self) -> Block:
        """A block before the first one, links set as vLLM's queue sets them."""
        return self._as_list()[0]

    @property
    def fake_free_list_tail(self) -> Block:
        """A block behind the last one, links set as vLLM's queue sets them."""
        return self._as_list()[1]

    def _as_list(self) -> tuple[Block, Block]:
        if self._own is not None:
            return self._own.fake_free_list_head, self._own.fake_free_list_tail
        if self._view is None:
            self._view = self._stock(self.get_all_free_blocks())
        return self._view.fake_free_list_head, self._view.fake_free_list_tail

    def _settle(self) -> None:
        """Before anything else happens."""
        if self._pulled:
            pulled, self._pulled = self._pulled, []
            self.cache.hit(pulled)
        if self._view is not None:
            self._unlink()

    def _unlink(self) -> None:
        for block in self._view.get_all_free_blocks():
            block.prev_free_block = block.next_free_block = None
        self._view = None

    def _hash_of(self, block: int) -> Any:
        return self._by_id[block]._block_hash

    # The safety net.

    def fall_back(self, error: Exception) -> None:
        """vLLM's own queue goes on from here, in the order of LRU as far as known."""
        if self._own is not None:
            return
        self.failures += 1
        logger.warning(
            "perc: policy %s failed (%s: %s). This block pool goes on in vLLM's own "
            "order (LRU); requests are not affected. Please report this.",
            self.settings.policy.name,
            type(error).__name__,
            error,
            exc_info=error,
        )
        if self._view is not None:
            self._unlink()
        free = [b for b in self._blocks if b.ref_cnt == 0 and not b.is_null]
        free.sort(key=lambda block: block._block_hash is not None)
        self._own = self._stock(free)
