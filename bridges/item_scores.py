"""Scores of single items, for engines that rank their entries themselves.

SGLang and LMCache keep the books and ask a policy for one number an entry. So here an
item is known by a name alone, and its use by what the engine tells:

    used     an item is used; the policy learns how soon it came back
    score    what it is worth now, the lowest leaves first

Items that have left stay known, up to `memory` of them, so that their return counts.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np

from perc.bridges.aged_orders import AgedOrder
from perc.bridges.live_keys import LiveKeys
from perc.bridges.live_reuse import LiveReuse
from perc.bridges.orders import LruOrder, order_of
from perc.bridges.uses import Facts, Run
from perc.errors import InputError
from perc.types import AnyPolicy, OnlinePolicy, Policy

BLOCK_TOKENS = 16  # tokens that count as a block
MEMORY = 1 << 16


class Item:
    """The last use of an item; to the counts of reuse, a `perc.bridges.uses.Use`."""

    __slots__ = ("cls", "frequency", "key", "time_s", "waiting")

    def __init__(self, time_s: float, frequency: int):
        self.time_s = time_s
        self.frequency = frequency  # uses so far
        self.key = 0.0  # of a policy whose order does not change with time
        self.cls = 0  # of one whose order does
        self.waiting = 0  # blocks that have not been used since


class ItemScores:
    """What items are worth under a policy.

    Args:
        policy: static, or by class and age; the same as a vLLM bridge takes.
        memory: items that are remembered, the least recently used left out.

    Raises:
        InputError: if a running server cannot serve the policy; the message says why.
    """

    def __init__(self, policy: AnyPolicy, *, memory: int = MEMORY):
        guarded = getattr(getattr(policy, "rule", None), "guard", None) is not None
        if "history" in policy.uses or guarded:
            raise InputError(
                f"policy {policy.name}: a guard or a history of requests cannot be "
                "kept for single items. Use perc, lru or a static score."
            )
        order = order_of(policy, 1, BLOCK_TOKENS)
        self.policy = policy
        self.is_lru = isinstance(order, LruOrder)
        self._keys: LiveKeys | None = None
        self._reuse: LiveReuse | None = None
        if isinstance(order, AgedOrder):
            assert isinstance(policy, OnlinePolicy)
            self._reuse = LiveReuse(policy)
        elif not self.is_lru:
            assert isinstance(policy, Policy)
            self._keys = LiveKeys(policy, BLOCK_TOKENS)
        self._items: OrderedDict[Hashable, Item] = OrderedDict()
        self._memory = memory
        self._uses = 0

    def known_s(self, name: Hashable) -> float | None:
        """When an item was used last, None if that is not known."""
        item = self._items.get(name)
        return None if item is None else item.time_s

    def used(
        self,
        name: Hashable,
        now_s: float,
        *,
        blocks: int = 1,
        before: int = 0,
        turn: int = 1,
        priority: int = 0,
    ) -> None:
        """An item is used.

        Args:
            name: what the item is, wherever it is kept.
            now_s: seconds, or any other unit of time, not falling.
            blocks: its size.
            before: blocks of its prompt before it.
            turn: of the request that uses it, 1 = first of its session.
            priority: of the request, higher is more important.
        """
        old = self._items.pop(name, None)
        item = Item(now_s, old.frequency + 1 if old else 1)
        if self._reuse is not None:
            self._learn(self._reuse, item, old, blocks, turn)
        elif self._keys is not None:
            facts = Facts(
                priority=priority, input_tokens=(before + blocks) * BLOCK_TOKENS
            )
            last: Any = old
            runs = [Run(0, before + blocks, last)]
            (key,) = self._keys.keys(facts, turn, runs, self._uses, now_s)
            key = float(key[-1]) if isinstance(key, np.ndarray) else key
            item.key = key if old is None else max(old.key, key)
        self._uses += 1
        self._items[name] = item
        if len(self._items) > self._memory:
            forgotten = self._items.popitem(last=False)[1]
            if self._reuse is not None:
                self._reuse.lost(forgotten, forgotten.waiting)
            forgotten.waiting = 0

    def score(self, name: Hashable, now_s: float) -> float:
        """What an item that has been `used` is worth now; the lowest leaves first."""
        item = self._items[name]
        if self._reuse is not None:
            return self._reuse.worth(item.cls, max(now_s - item.time_s, 0.0))
        return item.time_s if self.is_lru else item.key

    def _learn(
        self, reuse: LiveReuse, item: Any, old: Any, blocks: int, turn: int
    ) -> None:
        item.cls = reuse.class_of(item.frequency, turn, 0)
        item.waiting = blocks
        if old is not None:
            reuse.used(old, min(old.waiting, blocks), item.time_s)
            old.waiting = 0
        reuse.add(item)
        reuse.requested(item.time_s)
