"""What the rules ask for each block at each of its uses, users of a block merged.

A rule *claims* a priority or a deadline for the blocks that it covers, and so for
those before them in the prompt, without which they are of no use. Of several claims the
highest priority holds, and the latest deadline. None of this depends on the cache: a
block that is evicted and comes back is what its users made of it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perc.retention.rules import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    Rules,
    covered_blocks,
    selected,
)
from perc.types import Trace

NO_RULE = -1


class _Claim(NamedTuple):
    """A priority that one rule asks for."""

    rule: int
    level: int
    covers: np.ndarray  # bool[N]
    until_s: np.ndarray  # f64[N], inf = for good


@dataclass(frozen=True)
class Claims:
    """The merged claims on the block of each access, from that access on.

    The block's priority at time t is the highest level whose `until_s` is above t;
    failing that `floor` before `floor_until_s`, and the default from then on.
    """

    levels: tuple[int, ...]  # above the default, rising
    until_s: np.ndarray  # f64[len(levels), N], -inf = never
    until_rule: np.ndarray  # i32[len(levels), N]
    floor: np.ndarray  # i32[N], below the default
    floor_until_s: np.ndarray  # f64[N], -inf = the floor is the default
    floor_rule: np.ndarray  # i32[N]
    deadline_s: np.ndarray  # f64[N], -inf = none
    deadline_rule: np.ndarray  # i32[N]
    pins: np.ndarray  # i32[R], leading blocks to be pinned
    pin_rule: np.ndarray  # i32[N], the first rule that pins this access's block

    def priority_at(self, i: np.ndarray, time_s: np.ndarray) -> np.ndarray:
        """Priorities i32[...] of the blocks of accesses i at a time."""
        found = np.where(
            self.floor_until_s[i] > time_s, self.floor[i], DEFAULT_PRIORITY
        )
        for level, until in zip(self.levels, self.until_s, strict=True):
            found = np.where(until[i] > time_s, level, found)
        return found

    def priority_rule_at(self, i: np.ndarray, time_s: np.ndarray) -> np.ndarray:
        """The rule i32[...] behind each of those priorities, -1 = none."""
        found = np.where(self.floor_until_s[i] > time_s, self.floor_rule[i], NO_RULE)
        for until, rule in zip(self.until_s, self.until_rule, strict=True):
            found = np.where(until[i] > time_s, rule[i], found)
        return found


def claims_of(trace: Trace, rules: Rules) -> Claims:
    """Merges what all rules ask for, over the users of each block.

    Rules are numbered as in the file; the trace's priority column counts as one more.
    """
    n = trace.n_accesses
    claims = [*_of_rules(trace, rules), *_of_column(trace, rules)]
    levels = tuple(sorted({c.level for c in claims if c.level > DEFAULT_PRIORITY}))
    merged = [
        _latest(trace, [(c.rule, c.covers, c.until_s) for c in some], rules.merge)
        for some in ([c for c in claims if c.level == level] for level in levels)
    ]
    floor, floor_until, floor_rule = _floors(trace, claims, rules.merge)
    deadline, deadline_rule = _deadlines(trace, rules)
    pins, pin_rule = _pins(trace, rules)
    return Claims(
        levels=levels,
        until_s=np.array([until for until, _ in merged]).reshape(-1, n),
        until_rule=np.array([rule for _, rule in merged], np.int32).reshape(-1, n),
        floor=floor,
        floor_until_s=floor_until,
        floor_rule=floor_rule,
        deadline_s=deadline,
        deadline_rule=deadline_rule,
        pins=pins,
        pin_rule=pin_rule,
    )


def _covers(trace: Trace, rules: Rules, number: int) -> np.ndarray:
    """The accesses bool[N] that rule `number` covers."""
    rule = rules.rules[number]
    chosen = selected(trace, rules, rule)
    low, high = covered_blocks(trace, rule)
    r = trace.request
    return chosen[r] & (low[r] <= trace.depth) & (trace.depth < high[r])


def _of_rules(trace: Trace, rules: Rules) -> list[_Claim]:
    arrival = trace.arrival_s[trace.request]
    return [
        _Claim(
            number,
            rule.priority,
            _covers(trace, rules, number),
            arrival + (np.inf if rule.duration_s is None else rule.duration_s),
        )
        for number, rule in enumerate(rules.rules)
        if rule.priority is not None
    ]


def _of_column(trace: Trace, rules: Rules) -> list[_Claim]:
    """Claims of the trace's own column, where 0 is the default."""
    if not rules.trace_priority:
        return []
    column = trace.priority[trace.request].astype(np.int64)
    level = np.clip(column + DEFAULT_PRIORITY, 0, HIGHEST_PRIORITY)
    for_good = np.full(trace.n_accesses, np.inf)
    return [
        _Claim(len(rules.rules), int(value), (level == value) & (column != 0), for_good)
        for value in np.unique(level[column != 0])
    ]


def _latest(trace: Trace, some, merge: str) -> tuple[np.ndarray, np.ndarray]:
    """The latest end f64[N] of some claims (rule, covers, until), and whose it is."""
    until = np.full(trace.n_accesses, -np.inf)
    whose = np.full(trace.n_accesses, NO_RULE, np.int32)
    for rule, covers, end in some:
        later = covers & (end > until)
        until, whose = np.where(later, end, until), np.where(later, rule, whose)
    source = strongest(trace, until, merge)
    return until[source], whose[source]


def _floors(trace: Trace, claims: list[_Claim], merge: str):
    """What holds where no claim above the default does, until when, and whose it is.

    A user that claims nothing asks for the default, and so does one whose lowered
    priority has ended.
    """
    n = trace.n_accesses
    floor, until = np.full(n, -1), np.full(n, np.inf)
    whose, asked = np.full(n, NO_RULE, np.int32), np.zeros(n, bool)
    for claim in claims:
        lowered = claim.level < DEFAULT_PRIORITY
        end = claim.until_s if lowered else np.full(n, -np.inf)
        until = np.where(claim.covers, np.minimum(until, end), until)
        higher = claim.covers & (claim.level > floor)
        floor = np.where(higher, claim.level, floor)
        whose = np.where(higher, claim.rule, whose)
        asked |= claim.covers
    until = np.where(asked, until, -np.inf)
    floor = np.where(asked, floor, DEFAULT_PRIORITY)
    high = strongest(trace, floor.astype(np.float64), merge)
    return floor[high], until[strongest(trace, -until, merge)], whose[high]


def _deadlines(trace: Trace, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    arrival = trace.arrival_s[trace.request]
    some = [
        (number, _covers(trace, rules, number), arrival + rule.ttl_s)
        for number, rule in enumerate(rules.rules)
        if rule.ttl_s is not None
    ]
    return _latest(trace, some, "max")


def _pins(trace: Trace, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    pins = np.zeros(trace.n_requests, np.int32)
    whose = np.full(trace.n_accesses, NO_RULE, np.int32)
    for number, rule in reversed(list(enumerate(rules.rules))):
        if rule.pin:
            covers = _covers(trace, rules, number)
            end = np.zeros(trace.n_requests, np.int32)
            np.maximum.at(end, trace.request[covers], trace.depth[covers] + 1)
            whose[trace.depth < end[trace.request]] = number
            pins = np.maximum(pins, end)
    return pins, whose


def strongest(trace: Trace, value: np.ndarray, merge: str) -> np.ndarray:
    """The access i32[N] whose value counts for the block of each access.

    Inside a request that is the highest at the block or after it: what holds for a
    block holds for its prefix. Then, with "max", the highest so far of all users.

    Args:
        trace: N accesses.
        value: f64[N]; of equal ones the last counts.
        merge: "max", or "override" for the last user alone.
    """
    if not len(value):
        return np.zeros(0, np.int64)
    by_value = np.argsort(value, kind="stable")
    place = np.empty(len(value), np.int64)
    place[by_value] = np.arange(len(value))
    from_tail = (trace.n_requests - 1 - trace.request)[::-1]
    place = _running_max(place[::-1], from_tail)[::-1]
    if merge == "max":
        by_block = np.argsort(trace.block, kind="stable")
        place[by_block] = _running_max(place[by_block], trace.block[by_block])
    return by_value[place]


def _running_max(values: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Running maxima of values below their number, anew in each segment, rising."""
    lift = segment.astype(np.int64) * len(values)
    return np.maximum.accumulate(values + lift) - lift
