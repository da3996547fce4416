"""A comparison of policies with and without rules: who gains, who pays, what broke."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from perc.capacities import Capacity, in_blocks
from perc.compare import (
    DEFAULT_CAPACITIES,
    Progress,
    check_blocks,
    describe,
    resolve,
    run,
)
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.metrics import Metrics, measure, ratio, warmup_requests
from perc.retention.account import QuotaUse, Upkeep, quota_use, upkeep
from perc.retention.replay import Ruled, ranked, replay_rules
from perc.retention.rules import (
    NOBODY,
    Rules,
    covered_blocks,
    selected,
    tenant_of,
    warn_of_idle_rules,
)
from perc.types import AnyPolicy, Policy, Trace

GIB = 2**30
# `perc` chooses victims by itself; `perc_decay` is its rule as a score of each use.
RULED_POLICIES = ("lru", "fifo", "lfu", "perc_decay", "belady")


@dataclass(frozen=True)
class ClassRow:
    """Block hit ratio of a class of requests, or of the blocks that a rule covers."""

    by: str  # "all", "rule", "tenant" or "kind"
    name: str
    requests: int
    blocks: int  # looked up
    without: float
    with_rules: float


@dataclass(frozen=True)
class RuledRow:
    """One policy at one capacity, with the rules and without."""

    policy: str
    capacity_blocks: int
    without: Metrics
    with_rules: Metrics
    classes: list[ClassRow]
    rules: list[Upkeep]
    quotas: list[QuotaUse]


@dataclass(frozen=True)
class RuleComparison:
    """The answer of `compare_rules`: rows by capacity, then in the policies' order."""

    trace: dict  # what was replayed, plain numbers
    definitions: dict  # what each number means
    rows: list[RuledRow]
    gib_per_block: float | None
    clairvoyant: tuple[str, ...]
    # Leading blocks i32[R] under the rules, by policy and capacity: `attribute(ruled=)`
    hits: dict[str, dict[int, np.ndarray]]

    def as_dict(self) -> dict:
        """What `--json` prints; with bytes per token, GiB-seconds as well."""
        rows = [asdict(row) for row in self.rows]
        if self.gib_per_block is not None:
            for rule in (rule for row in rows for rule in row["rules"]):
                for name in ("pin", "ttl", "priority"):
                    held = rule[f"{name}_block_s"] * self.gib_per_block
                    rule[f"{name}_gib_s"] = held
        return {"trace": self.trace, "definitions": self.definitions, "rows": rows}


def compare_rules(
    trace: Trace,
    rules: Rules,
    policies: str | Iterable[str | AnyPolicy] | None = None,
    capacities: Capacity | Iterable[Capacity] = DEFAULT_CAPACITIES,
    *,
    warmup: float = 0.0,
    cost: PrefillCost = DEFAULT_COST,
    bytes_per_token: float | None = None,
    progress: Progress | None = None,
) -> RuleComparison:
    """Replays a trace through every policy at every capacity, with and without rules.

    Args:
        trace: the traffic.
        rules: from `perc.load_rules` or `perc.parse_rules`.
        policies: names from the registry, or policies that score each use; None:
            `RULED_POLICIES`.
        capacities: blocks (int) or shares of the working set (float).
        warmup: the first share of the requests fills the cache and is not counted.
        cost: prices recomputed tokens.
        bytes_per_token: of keys and values in the cache, for GiB-seconds.
        progress: called before each replay.

    Raises:
        InputError: for a policy whose order depends on the cache, a trace without
            blocks, or a number out of range.

    Example:
        >>> import perc
        >>> trace = perc.make("agent", requests=100)
        >>> rules = perc.parse_rules({"rules": [{"kind": "tool_use", "ttl_s": 60}]})
        >>> (row,) = perc.compare_rules(trace, rules, "lru", [500]).rows
        >>> [one.name for one in row.classes]
        ['all requests', 'rule 1', 'end_turn', 'tool_use']
    """
    chosen = [ranked(policy) for policy in resolve(policies or RULED_POLICIES)]
    sizes = in_blocks(trace, capacities)
    skip = warmup_requests(trace, warmup)
    gib = _gib_per_block(trace, bytes_per_token)
    check_blocks(trace)
    warn_of_idle_rules(trace, rules)
    found: list[list[RuledRow]] = []
    hits = {}
    for policy in chosen:
        if progress:
            progress(len(found), len(chosen), policy.name)
        plain = run(policy, trace, sizes, cost=cost)
        ruled = replay_rules(trace, policy, rules, sizes, cost=cost)
        found.append(list(_rows(trace, policy, plain, ruled, skip, cost)))
        hits[policy.name] = dict(zip(sizes, ruled.hits.blocks, strict=True))
    if progress:
        progress(len(chosen), len(chosen), "done")
    return RuleComparison(
        trace=describe(trace, skip),
        definitions=_definitions(trace, rules, warmup, skip, bytes_per_token),
        rows=[rows[k] for k in range(len(sizes)) for rows in found],
        gib_per_block=gib,
        clairvoyant=tuple(p.name for p in chosen if p.clairvoyant),
        hits=hits,
    )


def _rows(
    trace: Trace,
    policy: Policy,
    plain: np.ndarray,
    ruled: Ruled,
    skip: int,
    cost: PrefillCost,
) -> Iterator[RuledRow]:
    for k, size in enumerate(ruled.capacities):
        before, after = plain[k], np.asarray(ruled.hits.blocks[k])
        without, with_rules = (
            measure(trace, hits, warmup_requests=skip, cost=cost)
            for hits in (before, after)
        )
        yield RuledRow(
            policy=policy.name,
            capacity_blocks=size,
            without=without,
            with_rules=with_rules,
            classes=list(class_rows(trace, ruled.rules, before, after, skip)),
            rules=upkeep(ruled, k, skip),
            quotas=quota_use(ruled, k, skip),
        )


def class_rows(
    trace: Trace, rules: Rules, before: np.ndarray, after: np.ndarray, skip: int
) -> Iterator[ClassRow]:
    """Hit ratios by class from the leading hits i32[R] without and with rules.

    All requests, the blocks that each rule covers, each tenant, and each kind if there
    are several.
    """
    tenant = tenant_of(trace, rules)
    length = (trace.stop - trace.start).astype(np.int64)
    start = np.zeros_like(length)
    counted = np.arange(trace.n_requests) >= skip

    def row(by: str, name: str, chosen, low=start, high=length) -> ClassRow:
        chosen = chosen & counted
        blocks = (high - low)[chosen].sum()
        hits = (
            (np.clip(leading, low, high) - low)[chosen].sum()
            for leading in (before, after)
        )
        ratios = (ratio(int(hit), int(blocks)) for hit in hits)
        return ClassRow(by, name, int(chosen.sum()), int(blocks), *ratios)

    yield row("all", "all requests", counted)
    for rule in rules.rules:
        chosen = selected(trace, rules, rule)
        yield row("rule", rule.name, chosen, *covered_blocks(trace, rule))
    if rules.tenants:
        for number, name in enumerate([NOBODY, *(one.name for one in rules.tenants)]):
            if number or (tenant == 0).any():
                yield row("tenant", name, tenant == number)
    if len(trace.kinds) > 1:
        for number in np.argsort(trace.kinds):
            yield row("kind", trace.kinds[number], trace.kind == number)


def _gib_per_block(trace: Trace, bytes_per_token: float | None) -> float | None:
    if bytes_per_token is None:
        return None
    if not 0 < bytes_per_token < math.inf:
        raise InputError(
            f"{bytes_per_token} bytes per token; give 2 * layers * KV heads * head "
            "size * bytes of a number, such as 131072 for Llama-3-8B at 16 bits."
        )
    return trace.block_tokens * bytes_per_token / GIB


def _definitions(
    trace: Trace, rules: Rules, warmup: float, skip: int, bytes_per_token: float | None
) -> dict:
    definitions = {
        "block_hit_ratio": "blocks of the longest resident prefix / blocks looked up",
        "rule": "as a class: of the tokens that the rule covers, in the requests that "
        "it selects",
        "tenant": "a block counts against the quota of its tenant while no other "
        "request has used it",
        "block_s": "blocks x seconds that a block was in the cache and protected: by "
        "its pin, or else its deadline, or else a priority above 35",
        "pins_refused": "times that a block was to be pinned, and the budget was spent "
        "or the block not stored",
        "ttl_released_early": "blocks evicted before their deadline",
        "requests_over": "requests of the tenant after which it held more than its "
        "quota; only a full cache takes blocks back",
        "merge": rules.merge,
        "counted": f"requests {skip + 1} to {trace.n_requests} (warm-up share "
        f"{warmup}), the cache is empty at request 1",
    }
    if bytes_per_token is not None:
        definitions["gib_s"] = (
            f"block-seconds x {trace.block_tokens} tokens x {bytes_per_token:,.0f} "
            "bytes / 2**30"
        )
    return definitions
