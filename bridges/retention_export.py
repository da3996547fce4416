"""Scores and retention rules as data for TensorRT-LLM and Dynamo; imports neither.

TensorRT-LLM evicts by priority, 0 first, 100 last, 35 where nothing is said, and inside
a priority by recency. A request may carry priorities for ranges of its tokens, and how
long they hold (`KvCacheRetentionConfig`). Dynamo forwards one priority a request in
`nvext.agent_hints`, 0 where nothing is said.

    Scale             scores to priorities: the median score of your traffic is 35
    score_retention   priorities of a prompt from the scores of its blocks
    rule_retention    the same from a file of retention rules (`perc.retention`)
    dynamo_hints      the `nvext` part of a request
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from perc.errors import InputError
from perc.retention.rules import (
    DEFAULT_PRIORITY,
    HIGHEST_PRIORITY,
    Rule,
    Rules,
    Selector,
)

LONGEST_MS = 2**63 - 1  # durations are 64-bit milliseconds
MOST = 2**31 - 1  # tokens


class Scale:
    """Turns scores of one policy into priorities, by their place among known ones.

    priority = 35 at the median, 0 below and 100 above all; never falling with the score

    Args:
        known: scores of blocks of typical traffic, at least two different ones.

    Raises:
        InputError: if there are fewer, or one is no number.

    >>> scale = Scale([1, 2, 3, 4])
    >>> [scale.priority(score) for score in (0, 2, 2.5, 3, 9)]
    [0, 26, 35, 51, 100]
    """

    def __init__(self, known: Sequence[float] | np.ndarray):
        scores = np.sort(np.asarray(known, np.float64).ravel())
        if np.isnan(scores).any() or not len(scores) or scores[0] == scores[-1]:
            raise InputError(
                f"{len(scores)} scores, at least two different numbers are needed: "
                "give the scores of a trace's blocks."
            )
        self._known = scores.tolist()

    def priority(self, score: float) -> int:
        """Of a block with this score."""
        below = bisect_left(self._known, score) + bisect_right(self._known, score)
        share = below / (2 * len(self._known))
        if share <= 0.5:
            return round(2 * share * DEFAULT_PRIORITY)
        above = HIGHEST_PRIORITY - DEFAULT_PRIORITY
        return DEFAULT_PRIORITY + round((2 * share - 1) * above)


class RequestFacts(NamedTuple):
    """What rules select a request by; as in a trace."""

    kind: str = "request"
    tenant: str | None = None
    session: int = 0
    turn: int = 1
    priority: int = 0


def score_retention(
    scores: Sequence[float] | np.ndarray,
    scale: Scale,
    *,
    block_tokens: int,
    input_tokens: int,
    duration_ms: int | None = None,
    decode_priority: int = DEFAULT_PRIORITY,
    decode_duration_ms: int | None = None,
) -> dict[str, Any]:
    """The retention of one prompt, from the scores of its blocks.

    Along the prompt priorities do not rise, so that no block outlives those before it.

    Args:
        scores: f[L] of the blocks, root first.
        scale: of the policy that gave them.
        block_tokens: tokens of a full block.
        input_tokens: tokens of the prompt; they fill L blocks, the last one maybe not.
        duration_ms: how long the priorities hold, None = for good.
        decode_priority: of the tokens that are generated.
        decode_duration_ms: how long that holds.

    Returns:
        The arguments of `KvCacheRetentionConfig`, checked.

    Raises:
        InputError: if lengths do not fit, or a number is out of range.
    """
    if block_tokens < 1 or len(scores) != -(-input_tokens // block_tokens):
        raise InputError(
            f"{len(scores)} scores for {input_tokens} tokens in blocks of "
            f"{block_tokens}: give one score a block, the last, partial one included."
        )
    worth = np.maximum.accumulate(np.asarray(scores, np.float64)[::-1])[::-1]
    ranges = []
    for i, score in enumerate(worth.tolist()):
        end = min((i + 1) * block_tokens, input_tokens)
        ranges.append(_range(i * block_tokens, end, scale.priority(score), duration_ms))
    return _config(ranges, decode_priority, decode_duration_ms)


def rule_retention(
    rules: Rules,
    facts: RequestFacts,
    *,
    input_tokens: int,
    decode_priority: int = DEFAULT_PRIORITY,
    decode_duration_ms: int | None = None,
) -> dict[str, Any]:
    """The retention of one prompt, from the rules that select its request.

    A pin is priority 100 for good, a time to live priority 100 for so long. Where rules
    overlap, the higher priority counts, and of equal ones the longer; with
    `merge = "override"` the later rule counts. Budgets, quotas and the default of
    TensorRT-LLM where no rule speaks are left to the server.

    Raises:
        InputError: if a number is out of range.
    """
    chosen = [rule for rule in rules.rules if _selects(rule.select, facts)]
    cuts = {0, input_tokens}
    for rule in chosen:
        cuts |= {min(place, input_tokens) for place in rule.tokens}
    edges = sorted(cuts)
    ranges = []
    for start, end in zip(edges, edges[1:], strict=False):
        claims = [
            claim
            for rule in chosen
            if rule.tokens[0] <= start and end <= rule.tokens[1]
            for claim in _claims(rule)
        ]
        if claims:
            later = rules.merge == "override"
            priority, ms = claims[-1] if later else max(claims, key=_strength)
            ranges.append(_range(start, end, priority, ms))
    return _config(ranges, decode_priority, decode_duration_ms)


def dynamo_hints(
    config: Mapping[str, Any],
    *,
    osl: int | None = None,
    speculative_prefill: bool | None = None,
) -> dict[str, Any]:
    """The `nvext` part of a request to Dynamo, from a retention config.

    Dynamo has one priority a request: that of the head of the prompt, counted from
    TensorRT-LLM's default.

    Args:
        config: as `score_retention` and `rule_retention` give it.
        osl: expected output tokens.
        speculative_prefill: whether Dynamo may prefill the next turn.

    >>> dynamo_hints(_config([_range(0, 8, 90, None)], 35, None), osl=100)
    {'nvext': {'agent_hints': {'priority': 55, 'osl': 100}}}
    """
    check_retention(config)
    if osl is not None and not 0 <= osl <= MOST:
        raise InputError(f"osl = {osl}: must be output tokens, 0 or more.")
    ranges = config["token_range_retention_configs"]
    head = DEFAULT_PRIORITY
    if ranges and ranges[0]["token_start"] == 0:
        head = ranges[0]["priority"]
    hints: dict[str, Any] = {"priority": head - DEFAULT_PRIORITY}
    if osl is not None:
        hints["osl"] = osl
    if speculative_prefill is not None:
        hints["speculative_prefill"] = speculative_prefill
    return {"nvext": {"agent_hints": hints}}


def check_retention(config: Mapping[str, Any]) -> None:
    """Checks what TensorRT-LLM would refuse, or quietly take for something else.

    Raises:
        InputError: naming the range and the value.
    """
    _check("decode", config["decode_retention_priority"], config["decode_duration_ms"])
    end = 0
    for number, one in enumerate(config["token_range_retention_configs"]):
        where = f"range {number}"
        if not end <= one["token_start"] < one["token_end"] <= MOST:
            raise InputError(
                f"{where}: tokens {one['token_start']} to {one['token_end']}: ranges "
                "must be in order, hold a token and not overlap."
            )
        end = one["token_end"]
        _check(where, one["priority"], one["duration_ms"])


def _check(where: str, priority: int, duration_ms: int | None) -> None:
    if not isinstance(priority, int) or not 0 <= priority <= HIGHEST_PRIORITY:
        raise InputError(f"{where}: priority {priority!r}: must be 0 to 100, whole.")
    if duration_ms is None:
        return
    if not isinstance(duration_ms, int) or not 0 < duration_ms <= LONGEST_MS:
        raise InputError(
            f"{where}: duration_ms {duration_ms!r}: must be whole, above 0, or None."
        )


def _selects(select: Selector, facts: RequestFacts) -> bool:
    if select.kind is not None and facts.kind not in select.kind:
        return False
    if select.tenant is not None and facts.tenant not in select.tenant:
        return False
    for column in ("session", "turn", "priority"):
        spans = getattr(select, column)
        value = getattr(facts, column)
        if spans is not None and not any(a <= value <= b for a, b in spans):
            return False
    return True


def _claims(rule: Rule) -> list[tuple[int, int | None]]:
    """Priorities that a rule asks for, each for milliseconds, None = for good."""
    claims: list[tuple[int, int | None]] = []
    if rule.priority is not None:
        claims.append((rule.priority, _ms(rule.duration_s)))
    if rule.ttl_s is not None:
        claims.append((HIGHEST_PRIORITY, _ms(rule.ttl_s)))
    if rule.pin:
        claims.append((HIGHEST_PRIORITY, None))
    return claims


def _strength(claim: tuple[int, int | None]) -> tuple[int, int]:
    return claim[0], LONGEST_MS if claim[1] is None else claim[1]


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else max(round(seconds * 1000), 1)


def _range(start: int, end: int, priority: int, ms: int | None) -> dict[str, Any]:
    return {
        "token_start": start,
        "token_end": end,
        "priority": priority,
        "duration_ms": ms,
    }


def _config(
    ranges: list[dict[str, Any]], decode_priority: int, decode_duration_ms: int | None
) -> dict[str, Any]:
    """Joins neighbours that ask for the same, and checks."""
    joined: list[dict[str, Any]] = []
    for one in ranges:
        last = joined[-1] if joined else None
        if last is not None and last == {**one, **_span(last)}:
            if last["token_end"] == one["token_start"]:
                last["token_end"] = one["token_end"]
                continue
        joined.append(one)
    config = {
        "token_range_retention_configs": joined,
        "decode_retention_priority": decode_priority,
        "decode_duration_ms": decode_duration_ms,
    }
    check_retention(config)
    return config


def _span(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("token_start", "token_end")}
