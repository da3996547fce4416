"""What a retention rule is: which requests it selects, and what it asks for them."""

import warnings
from dataclasses import dataclass

import numpy as np

from perc.errors import TraceWarning
from perc.types import Trace

Span = tuple[int, int]  # whole numbers, both ends included
Amount = int | float  # int: blocks; float: a share of the cache

DEFAULT_PRIORITY, HIGHEST_PRIORITY = 35, 100  # TensorRT-LLM's scale
END = 2**31 - 1  # no token of a prompt has this number
MERGES = ("max", "override")
NOBODY = "(no tenant)"


@dataclass(frozen=True)
class Selector:
    """Requests for which every condition holds that is given; None asks nothing."""

    kind: tuple[str, ...] | None = None
    tenant: tuple[str, ...] | None = None
    session: tuple[Span, ...] | None = None
    turn: tuple[Span, ...] | None = None
    priority: tuple[Span, ...] | None = None  # of the trace's column


@dataclass(frozen=True)
class Rule:
    """Directives for a range of tokens of the selected requests' prompts.

    `perc.retention.parse_rules` builds and checks it; the constructor checks nothing.
    """

    name: str
    select: Selector = Selector()
    tokens: Span = (0, END)  # from the first to before the second, counted from 0
    pin: bool = False  # never a victim, within the budget
    ttl_s: float | None = None  # kept until so long after the last use, if it can be
    priority: int | None = None  # 0 leaves first, 100 last
    duration_s: float | None = None  # of the priority; None = for good


@dataclass(frozen=True)
class Tenant:
    """Requests of one owner; a request belongs to the first tenant that selects it."""

    name: str
    select: Selector = Selector()
    quota: Amount | None = None  # None = no quota


@dataclass(frozen=True)
class Rules:
    """A file of rules. Without any, a cache does what it does without `--rules`.

    >>> Rules((Rule("system", tokens=(0, 2000), pin=True),), pin_budget=0.2).merge
    'max'
    """

    rules: tuple[Rule, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    pin_budget: Amount = 0  # of all pins together
    merge: str = "max"  # priorities of several users of a block; or "override"
    trace_priority: bool = True  # the trace's column sets priorities as well


def blocks_of(amount: Amount, capacity: int) -> int:
    """An amount in blocks, at most the capacity.

    >>> blocks_of(0.29, 100), blocks_of(7, 100), blocks_of(7, 5)
    (29, 7, 5)
    """
    if isinstance(amount, float):
        amount = int(amount * capacity + 1e-6)  # .29 of 100 are 29
    return min(int(amount), capacity)


def tenant_of(trace: Trace, rules: Rules) -> np.ndarray:
    """The tenant i32[R] of each request: 0 = none, else 1 + its place in the file."""
    tenant = np.zeros(trace.n_requests, np.int32)
    for number, one in reversed(list(enumerate(rules.tenants, 1))):
        tenant[_fits(trace, one.select)] = number
    return tenant


def selected(trace: Trace, rules: Rules, rule: Rule) -> np.ndarray:
    """Which requests one of the rules selects, bool[R]."""
    chosen = _fits(trace, rule.select)
    if rule.select.tenant is not None:
        names = [NOBODY, *(one.name for one in rules.tenants)]
        numbers = [i for i, name in enumerate(names) if name in rule.select.tenant]
        chosen &= np.isin(tenant_of(trace, rules), numbers)
    return chosen


def _fits(trace: Trace, select: Selector) -> np.ndarray:
    """Requests bool[R] for which all conditions but the tenant's hold."""
    chosen = np.ones(trace.n_requests, bool)
    if select.kind is not None:
        numbers = [i for i, name in enumerate(trace.kinds) if name in select.kind]
        chosen &= np.isin(trace.kind, numbers)
    for column in ("session", "turn", "priority"):
        spans = getattr(select, column)
        if spans is not None:
            values = getattr(trace, column)
            chosen &= np.any(
                [(low <= values) & (values <= high) for low, high in spans], axis=0
            )
    return chosen


def covered_blocks(trace: Trace, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """The blocks i32[R], first and after the last, that hold tokens of the rule."""
    length = (trace.stop - trace.start).astype(np.int64)
    first, end = rule.tokens
    low = np.minimum(first // trace.block_tokens, length)
    return low, np.clip(-(-end // trace.block_tokens), low, length)


def warn_of_idle_rules(trace: Trace, rules: Rules) -> None:
    """Says which rules and tenants select nothing of this trace."""
    tenant = tenant_of(trace, rules)
    for rule in rules.rules:
        chosen = selected(trace, rules, rule)
        low, high = covered_blocks(trace, rule)
        if not chosen.any():
            _warn(trace, f"rule {rule.name!r} selects no request")
        elif not (high > low)[chosen].any():
            _warn(trace, f"rule {rule.name!r} covers no whole or partial block")
    for number, one in enumerate(rules.tenants, 1):
        if not (tenant == number).any():
            _warn(trace, f"tenant {one.name!r} has no request")


def _warn(trace: Trace, what: str) -> None:
    kinds = ", ".join(trace.kinds)
    sessions = int(trace.session.max(initial=-1)) + 1
    warnings.warn(
        f"{what} of {trace.source}, which has the kinds {kinds} and {sessions:,} "
        f"sessions from number 0.",
        TraceWarning,
        stacklevel=3,
    )
