"""Random rules as TOML gives them, and what they ask for, read in plain Python."""

import math

import numpy as np
from hypothesis import strategies as st

from perc.traces.build import Columns, build_trace
from perc.types import Trace
from tests.oracles.retention import FOREVER, Ask

BLOCK_TOKENS = 4
small = st.integers(0, 3)
amounts = st.sampled_from([0, 1, 2, 4, 6, 0.25, 0.5, 1.0, 1.0])
seconds = st.sampled_from([0.5, 1.0, 2.5, 31.0, 100.0])
numbers = st.one_of(
    small,
    st.lists(small, min_size=1, max_size=2),
    st.fixed_dictionaries({}, optional={"from": st.integers(0, 1), "to": st.just(2)}),
)
tokens = st.sampled_from([{}, {}, {"to": 8}, {"from": 4}, {"from": 5, "to": 9}])


def directives(**choices):
    """At least one of the directives."""
    return st.fixed_dictionaries({}, optional=choices).filter(bool)


@st.composite
def selectors(draw, *names: str) -> dict:
    """No condition or one: several select nothing of a short trace."""
    name = draw(st.sampled_from([None, "kind", *names]))
    kinds = st.lists(st.sampled_from(["0", "1", "2"]), min_size=1, max_size=3)
    return {} if name is None else {name: draw(kinds if name == "kind" else numbers)}


@st.composite
def busy_traces(draw) -> Trace:
    """Prompts over a small tree, most of them used again, with gaps and labels.

    Short ones fill the accesses up to a multiple of 16: a score is compiled for each
    number of accesses.
    """
    edges = st.lists(st.integers(0, 1), min_size=1, max_size=4)
    rows = draw(st.lists(edges, min_size=6, max_size=16))
    rows += [[0]] * (-sum(map(len, rows)) % 16)
    n = len(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    labels = st.lists(small, min_size=n, max_size=n)
    gaps = draw(
        st.lists(st.sampled_from([0.0, 1.0, 1.0, 30.0]), min_size=n, max_size=n)
    )
    columns = Columns(
        arrival_s=np.cumsum(np.array(gaps)),
        input_tokens=lengths * BLOCK_TOKENS,
        output_tokens=np.full(n, 5),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=lengths,
        session=draw(labels),
        kind=draw(labels),
        priority=np.array(draw(labels), np.int64),
    )
    return build_trace(
        columns, block_tokens=BLOCK_TOKENS, source="hypothesis", chained=False
    )


priorities = st.fixed_dictionaries(
    {"priority": st.sampled_from([0, 10, 35, 36, 50, 100])},
    optional={"duration_s": seconds},
)


@st.composite
def tables(draw, merge: str) -> dict:
    """A file of rules with up to three rules, and no tenant or two with quotas.

    Always two, since each number of quotas is a program of its own to compile.
    """
    tenants = [
        {
            "name": name,
            **draw(selectors("session", "priority_column")),
            "quota": draw(amounts | st.just(999)),
        }
        for name in draw(st.sampled_from(["", "ab"]))
    ]
    rules = []
    for _ in range(draw(st.integers(1, 3))):
        asked = directives(pin=st.just(True), ttl_s=seconds, both=priorities)
        rule = draw(selectors("session", "turn", "priority_column"))
        rule |= draw(asked)
        rule |= rule.pop("both", {})
        rule["tokens"] = draw(tokens)
        if tenants and draw(st.booleans()):
            rule["tenant"] = draw(st.sampled_from([t["name"] for t in tenants]))
        rules.append(rule)
    return {
        "merge": merge,
        "pin_budget": draw(amounts),
        "trace_priority": draw(st.booleans()),
        "tenants": tenants,
        "rules": rules,
    }


def in_blocks(amount: float, capacity: int) -> int:
    if isinstance(amount, float):
        amount = math.floor(amount * capacity + 1e-6)
    return min(amount, capacity)


def _fits(wanted, value: int) -> bool:
    if isinstance(wanted, dict):
        return wanted.get("from", -FOREVER) <= value <= wanted.get("to", FOREVER)
    return value in wanted if isinstance(wanted, list) else value == wanted


def _selects(table: dict, trace: Trace, r: int, tenant: str) -> bool:
    return (
        trace.kinds[trace.kind[r]] in table.get("kind", trace.kinds)
        and table.get("tenant", tenant) == tenant
        and _fits(table.get("session", {}), trace.session[r])
        and _fits(table.get("turn", {}), trace.turn[r])
        and _fits(table.get("priority_column", {}), trace.priority[r])
    )


def tenant_of(table: dict, trace: Trace, r: int) -> str:
    for one in table["tenants"]:
        if _selects(one, trace, r, ""):
            return one["name"]
    return ""


def asks_of(table: dict, trace: Trace) -> list[list[Ask]]:
    """What each request asks for each of its blocks."""
    asks = []
    for r in range(trace.n_requests):
        now = float(trace.arrival_s[r])
        tenant = tenant_of(table, trace, r)
        length = int(trace.stop[r] - trace.start[r])
        claims = [[] for _ in range(length)]
        deadlines = [[] for _ in range(length)]
        pins = [False] * length
        for rule in table["rules"]:
            if not _selects(rule, trace, r, tenant):
                continue
            first = rule["tokens"].get("from", 0)
            end = rule["tokens"].get("to", FOREVER)
            for d in range(length):
                size = trace.block_tokens
                if d * size + size <= first or d * size >= end:
                    continue
                pins[d] |= rule.get("pin", False)
                if "ttl_s" in rule:
                    deadlines[d].append(now + rule["ttl_s"])
                if "priority" in rule:
                    until = now + rule.get("duration_s", FOREVER)
                    claims[d].append((rule["priority"], until))
        column = int(trace.priority[r])
        if table["trace_priority"] and column:
            for one in claims:
                one.append((min(max(35 + column, 0), 100), FOREVER))
        asks.append(
            [
                Ask(
                    priorities=claims[d:],
                    deadlines=[end for ends in deadlines[d:] for end in ends],
                    pin=any(pins[d:]),
                    tenant=tenant,
                )
                for d in range(length)
            ]
        )
    return asks
