"""Counts of reuse by class and age, kept up while a server runs: `perc.reuse`, live.

The counts are those that `perc.reuse.count_reuse` takes of a trace, epoch by epoch, and
the rule's own `worth` turns them into a table. JAX is asked once an epoch, never for a
request: epochs come after 32 requests, then whenever an eighth more are known. Tables
grow with the number of classes; `compile_ahead` keeps compilation out of requests.
"""

from bisect import bisect_right
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from perc.bridges.uses import Use
from perc.online_aged import one_peak
from perc.reuse import FIRST_EPOCH, GROWTH, Reuse, age_edges, pool
from perc.shapes import bucket
from perc.types import Features, OnlinePolicy

REMEMBERED = 1 << 10  # answers of the rule, each on so many frequencies:
AT_ONCE = 64
LEAST = 64  # classes that a table has room for at first
AHEAD = 1024  # and so many before a request may wait for a wider one to be compiled


class LiveReuse:
    """What blocks of each class are worth by age, as learned from traffic so far.

    A policy whose table is not learned from the traffic (`perc.policies.learned`) gives
    the names of its classes in advance.
    """

    def __init__(self, policy: OnlinePolicy):
        self.requests = 0
        self._policy = policy
        self._ages = age_edges()
        self._bins = [float(age) for age in self._ages]
        self._levels: list[dict[tuple[int, ...], int]] = []  # numbers of the classes
        self._parents: list[list[int]] = []
        self._memo: dict[tuple[int, int, int], list[tuple[int, ...]]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}  # by all levels of a class
        self._named: list[int] = []  # what the rule calls the finest classes
        self._done = np.zeros((LEAST, len(self._ages)), np.float64)
        self._gave_up = np.zeros_like(self._done)  # waited for to this age, in vain
        self._now_s = 0.0
        self._known = (np.zeros_like(self._done), np.zeros_like(self._done))
        self._uses: list[Use] = []  # those that blocks may still wait on
        self._room = 1024
        self._next = FIRST_EPOCH
        self._worth: list[list[float]] = []
        self._priced: tuple[int, ...] | None = None  # classes of each level in it
        self._n_priced = 0  # of the finest
        self._row: dict[int, int] = {}  # of classes that are newer than it

    def compile_ahead(self) -> None:
        """Has the rule compiled for tables as wide as they may come; needs a class."""
        width = LEAST
        while width <= AHEAD:
            self._table(width)
            width *= 2

    def class_of(self, frequency: int, turn: int, kind: int) -> int:
        """The number of the class of full blocks that were used so, by the rule."""
        tile, place = divmod(frequency, AT_ONCE)
        answers = self._memo.get((tile, turn, kind))
        if answers is None:
            answers = self._ask_rule(tile * AT_ONCE, turn, kind)
            if len(self._memo) >= REMEMBERED:
                self._memo.clear()
            self._memo[tile, turn, kind] = answers
        levels = answers[place]
        number = self._numbers.get(levels)
        if number is None:
            number = self._numbers[levels] = self.cls(levels)
        return number

    def _ask_rule(self, frequency: int, turn: int, kind: int) -> list[tuple[int, ...]]:
        """What the rule calls the classes of `AT_ONCE` frequencies from this one on."""
        every = np.ones(AT_ONCE, np.int32)
        known = {
            "tokens": every,
            "frequency": np.maximum(frequency + np.arange(AT_ONCE, dtype=np.int32), 1),
            "turn": every * turn,
            "kind": every * kind,
        }
        values = {name: known[name] for name in self._policy.uses}
        levels = self._policy.rule.classes(Features(**values))  # pyright: ignore
        return list(zip(*(np.asarray(level).tolist() for level in levels), strict=True))

    def cls(self, levels: Sequence[int]) -> int:
        """The number of a class that the rule names by `levels`, coarse to fine."""
        if not self._levels:
            self._levels = [{} for _ in levels]
            self._parents = [[] for _ in levels]
        above = 0
        for depth, (numbers, parents) in enumerate(
            zip(self._levels, self._parents, strict=True)
        ):
            name = tuple(levels[: depth + 1])
            if name not in numbers:
                numbers[name] = len(numbers)
                parents.append(above)
            above = numbers[name]
        if above == len(self._named):  # a new one: it leans on those above it
            self._named.append(levels[-1])
            self._done = _room_for(self._done, above)
            self._gave_up = _room_for(self._gave_up, above)
        return above

    def used(self, use: Use, blocks: int, now_s: float) -> None:
        """So many blocks, last used by `use`, are used again."""
        use.waiting -= blocks
        self._done[use.cls, self._bin(now_s - use.time_s)] += blocks

    def lost(self, use: Use, blocks: int) -> None:
        """So many blocks of `use` are waited for no more, as memory is bounded.

        Until now they had not returned, and that counts: were they left out, classes
        whose blocks never return would look as good as others.
        """
        self._gave_up[use.cls, self._bin(self._now_s - use.time_s)] += blocks

    def _bin(self, age_s: float) -> int:
        return bisect_right(self._bins, age_s) - 1 if age_s > 0 else 0

    def add(self, use: Use) -> None:
        """Blocks begin to wait; `Use.waiting` says how many."""
        self._uses.append(use)
        if len(self._uses) > self._room:
            self._prune()

    def requested(self, now_s: float) -> bool:
        """One more request is known; says if prices have changed."""
        self.requests += 1
        self._now_s = now_s
        if self.requests < self._next:
            return False
        self._next += max(FIRST_EPOCH, self._next // GROWTH)
        self._known = self._count(now_s)
        self._priced = None
        return True

    def worth(self, cls: int, age_s: float) -> float:
        """Of a block of a class at an age, in hits per block and second."""
        if self._priced is None:
            self._price()
        row = cls if cls < self._n_priced else self._row_of_new(cls)
        return self._worth[row][self._bin(age_s)]

    def _prune(self) -> None:
        self._uses = [use for use in self._uses if use.waiting > 0]
        self._room = 2 * len(self._uses) + 1024

    def _count(self, now_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Events and blocks at risk f64[K, A], as `perc.reuse` counts them."""
        self._prune()
        left = self._gave_up.copy()
        n = len(self._uses)
        cls = np.fromiter((use.cls for use in self._uses), np.int64, n)
        age = now_s - np.fromiter((use.time_s for use in self._uses), np.float64, n)
        waiting = np.fromiter((use.waiting for use in self._uses), np.float64, n)
        bins = np.searchsorted(self._ages, age, side="right") - 1
        np.add.at(left, (cls, np.maximum(bins, 0)), waiting)
        reached = (self._done + left)[:, ::-1].cumsum(1)[:, ::-1]
        return self._done.copy(), reached - left / 2

    def _price(self) -> None:
        """Asks the rule what blocks are worth, with room for classes to come."""
        self._worth = self._table(LEAST).tolist()
        self._priced = tuple(map(len, self._parents))
        self._n_priced = len(self._named)
        self._row.clear()

    def _table(self, width: int) -> np.ndarray:
        """What the rule says of the counts f32[K, A], of `width` classes or more."""
        with jax.default_device(jax.devices("cpu")[0]):
            worth = self._policy.rule.worth(self._policy.params, self._reuse(width))
            return np.asarray(one_peak(jnp.float32(worth)))[0]

    def _row_of_new(self, cls: int) -> int:
        """The row of a class that has come since: all it has leans on those above.

        The table has a row for what may come below each class of each level, without a
        count of its own (`_reuse`). Under class j of level l it is j + the classes of
        all finer levels.
        """
        row = self._row.get(cls)
        if row is None:
            assert self._priced is not None
            level, known = len(self._priced) - 1, cls
            while level >= 0 and known >= self._priced[level]:
                known = self._parents[level][known]
                level -= 1
            row = (known if level >= 0 else 0) + sum(self._priced[level + 1 :])
            self._row[cls] = row
        return row

    def _reuse(self, width: int) -> Reuse:
        """The counts, with a class to come below each class of each level.

        Those of level l stand behind its own classes, in the order of the classes of
        the level above, and of those to come there. All levels have one width, so that
        there are few shapes to compile.
        """
        to_come, levels = 1, []
        for level in self._parents:
            levels.append(np.array([*level, *range(to_come)], np.int32))
            to_come += len(level)
        size = bucket(max(map(len, levels)), width)
        parents = tuple(_padded(level, size) for level in levels)
        events, at_risk = (
            _padded(known.astype(np.float32), size)[None, :size]
            for known in self._known
        )
        return Reuse(
            epoch=np.zeros(1, np.int32),
            ages=self._ages,
            events=pool(events, parents),
            at_risk=pool(at_risk, parents),
            parents=parents,
            density=np.ones((1, size), np.float32),
            named=_padded(np.array(self._named), size),
        )


def _padded(array: np.ndarray, size: int) -> np.ndarray:
    room = max(size - len(array), 0)
    return np.concatenate([array, np.zeros((room, *array.shape[1:]), array.dtype)])


def _room_for(counts: np.ndarray, cls: int) -> np.ndarray:
    return _padded(counts, bucket(cls + 1, LEAST))
