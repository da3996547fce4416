"""In what order the blocks of a running server leave: one class a kind of policy.

An order hears of every request that gives its blocks back (`finished`), before they are
freed, and says in what groups and under what keys they then wait (`groups`).

    LruOrder     knows nothing: the order of release, block for block that of stock vLLM
    KeyedOrder   a static score, set at each release, and raised only
    AgedOrder    worth by class and age, priced again as blocks idle
    LearnedOrder the same, where a network names the class
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from perc.bridges.aged_orders import AgedOrder, LearnedOrder
from perc.bridges.live_guard import LiveGuard
from perc.bridges.live_history import LiveHistory
from perc.bridges.live_keys import LiveKeys, classes_of
from perc.bridges.remembering import Batch, Remembering, turn_of
from perc.bridges.uses import Facts, Run, Use
from perc.bridges.victims import Part, Victims
from perc.errors import InputError
from perc.policies.learned import network_of
from perc.policies.lru import lru
from perc.types import Aged, AnyPolicy, OnlinePolicy, Policy

GHOSTS = 8  # blocks that are remembered after they have left, in cache sizes


class Order(Protocol):
    """What `perc.bridges.live` asks of an order."""

    @property
    def victims(self) -> Victims:
        """The free blocks, in this order."""
        ...

    def finished(
        self, facts: Facts, ids: list[int], names: list[Hashable], now_s: float
    ) -> None:
        """A request is about to give back its cached blocks, root first.

        `names` are their hashes. Other requests may go on using some of them.
        """
        ...

    def groups(self, ids: list[int]) -> list[Batch]:
        """Cuts freed blocks, deepest first, into groups."""
        ...

    def left(self, parts: list[Part]) -> None:
        """Blocks with content were taken: uses, and blocks of each, deepest first."""
        ...


class LruOrder:
    """Least recently freed first, as the engine itself has it."""

    def __init__(self, size: int):
        self.victims = Victims(size)
        self._nothing = Use([], [], 0, 0.0, 1)

    def finished(self, facts, ids, names, now_s) -> None:
        """Nothing is remembered."""

    def groups(self, ids: list[int]) -> list[Batch]:
        """All in one group."""
        return [(self._nothing, 0.0, ids)]

    def left(self, parts: list[Part]) -> None:
        """Nothing is remembered."""


class KeyedOrder(Remembering):
    """Scores the blocks of a request once, when it gives them back.

    A key only rises: at every release, also of blocks that others still use, and along
    a prompt towards its root, as in `perc.step` with `Policy.chain`, whether the policy
    asks for it or not. So no block leaves before one that comes after it.
    """

    def __init__(self, policy: Policy, size: int, block_tokens: int, memory: int):
        super().__init__(size, Victims(size), memory)
        self._keys = LiveKeys(policy, block_tokens)
        asks = "history" in policy.uses
        self._history = LiveHistory(block_tokens) if asks else None

    def finished(self, facts, ids, names, now_s) -> None:
        """Scores the blocks, and raises their keys."""
        runs, visit = self._uses.runs(ids, names), None
        if self._history is not None:
            runs = self._history.cut(facts, runs)
            visit = self._history.finished(facts, runs, names, now_s)
        if not ids:
            return
        turn = turn_of(facts, runs)
        classes = classes_of(facts.kind, turn, runs)
        keys = self._keys.keys(facts, turn, runs, self._requests, now_s, visit)
        self._requests += 1
        for part, cls, key in reversed(_raised(runs, classes, keys)):
            use = self._new_use(facts, turn, part, ids, names, now_s)
            use.key, use.cls = key, cls
            if visit is not None:
                use.past = visit.past(part, names)
            self._uses.note(use)


def _raised(
    runs: list[Run], classes: list[int], keys: Sequence[float | np.ndarray]
) -> list[tuple[Run, int, float]]:
    """Stretches with one key, deepest first, each raised to what it must not be below:
    the keys of all that comes after, and its own last one.

    `keys` has one of each run, or f32[blocks of the run].
    """
    found = []
    after = -math.inf
    for run, cls, key in zip(runs[::-1], classes[::-1], keys[::-1], strict=True):
        own = -math.inf if run.old is None else run.old.key
        if not isinstance(key, np.ndarray):
            after = max(after, key)
            found.append((run, cls, max(after, own)))
            continue
        rising = np.maximum.accumulate(np.maximum(key[::-1], np.float32(after)))
        after = float(rising[-1])
        mine = np.maximum(rising, np.float32(own))
        cuts = (np.flatnonzero(np.diff(mine)) + 1).tolist()
        for start, stop in zip([0, *cuts], [*cuts, len(mine)], strict=True):
            part = Run(run.stop - stop, run.stop - start, run.old)
            found.append((part, cls, float(mine[start])))
    return found


def order_of(
    policy: AnyPolicy,
    size: int,
    block_tokens: int,
    *,
    stale_s: float = 0.0,
    memory: int | None = None,
) -> Order:
    """The live order of a policy.

    Args:
        policy: of the registry, or from a file.
        size: block numbers are below it.
        block_tokens: tokens of a full block.
        stale_s: seconds that prices may be old, where they change with time.
        memory: blocks that are remembered after they have left, 8 * `size` by default.

    Raises:
        InputError: if a running server cannot serve the policy; the message says why.
    """
    memory = GHOSTS * size if memory is None else memory
    if isinstance(policy, Policy):
        if policy.clairvoyant:
            raise InputError(f"policy {policy.name} reads the future; a server cannot.")
        if not policy.refresh:
            raise InputError(
                f"policy {policy.name}: it passes over hits, so the root of a prompt "
                "may leave before what comes after it. Use lru."
            )
        if policy.score is lru().score:
            return LruOrder(size)
        return KeyedOrder(policy, size, block_tokens, memory)
    if isinstance(policy.rule, Aged):
        known = {"tokens", "frequency", "turn", "kind"}
        if network_of(policy) is not None or set(policy.uses) <= known:
            return _guarded(policy, policy.rule, size, block_tokens, memory, stale_s)
    raise InputError(
        f"policy {policy.name}: its order depends on more than a server can keep up. "
        "Live policies are lru, perc, a file of perc train, and every static score "
        "such as perc_decay or priority (perc policies lists them all)."
    )


def _guarded(
    policy: OnlinePolicy,
    rule: Aged,
    size: int,
    block_tokens: int,
    memory: int,
    stale_s: float,
) -> AgedOrder:
    """The order of an `Aged` rule, and of the caches beside it if it has a guard."""

    def make(policy: OnlinePolicy) -> AgedOrder:
        if network_of(policy) is None:
            return AgedOrder(policy, size, memory, stale_s=stale_s)
        return LearnedOrder(
            policy, size, memory, stale_s=stale_s, block_tokens=block_tokens
        )

    order = make(policy)
    if rule.guard is not None:
        alone = make(replace(policy, rule=replace(rule, guard=None)))
        order.guard = LiveGuard(rule.guard, size, LruOrder(size), alone)
    return order
