"""Which protected prefixes to give up for room: rules, the exact optimum, regret.

A rule orders the candidates by what is known when room is asked for; they are given up
in that order until what they free covers the need. What it loses is known only later:

    loss(set) = sum of the losses of its candidates
    regret    = loss(rule) - loss(optimum)

The optimum is searched among all sets. Losses are no field of a candidate, so no rule
can read them.

References:
    zhengjiahong-ai, LLM-KV-Cache-Optimization: its offline rules M0 to M3 and H1, and
    its oracle.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

from perc.errors import InputError

MOST_CANDIDATES = 16  # 65,536 sets
TINY = 1e-12  # loss that a regret is at least divided by


class Candidate(NamedTuple):
    """A protected prefix, as it is known when room is asked for."""

    program: int
    prefix: int
    deadline_s: float
    prefill_s: float  # to compute it again
    blocks: int  # that it holds
    reclaimable: int  # of these, those that no other candidate holds
    is_code: bool = False  # its program waits for a tool that runs code


class Regret(NamedTuple):
    """How much worse than the optimum a set was."""

    loss: float
    optimum: float
    regret: float
    normalised: float  # by the size of the optimum's loss


Key = Callable[[Candidate, float], float | tuple]  # candidate and its size score


def per_block_s(one: Candidate) -> float:
    """Seconds to compute again for a block that becomes free; inf if none does."""
    return one.prefill_s / one.reclaimable if one.reclaimable else math.inf


RULES: dict[str, Key] = {  # the least is given up first
    "deadline": lambda one, _: one.deadline_s,
    "prefill": lambda one, _: one.prefill_s,
    "blocks": lambda one, _: one.blocks,
    "reclaimable": lambda one, _: one.reclaimable,
    "prefill_per_block": lambda one, _: per_block_s(one),
    "tool": lambda one, _: one.is_code,
    "tool_prefill": lambda one, _: (one.is_code, one.prefill_s),
    "size": lambda _, size: size,
    "tool_size": lambda one, size: (one.is_code, size),
    "reverse_deadline": lambda one, _: -one.deadline_s,
}


def size_scores(candidates: Sequence[Candidate]) -> list[float]:
    """Means [n] of prefill, blocks and reclaimable blocks, each scaled to 0..1.

    >>> small, large = Candidate(0, 0, 9.0, 1.0, 2, 2), Candidate(1, 0, 9.0, 3.0, 4, 1)
    >>> size_scores([small, large])
    [0.3333333333333333, 0.6666666666666666]
    """
    scores = [0.0] * len(candidates)
    for name in ("prefill_s", "blocks", "reclaimable"):
        values = [getattr(one, name) for one in candidates]
        least, span = min(values, default=0), max(values, default=0)
        span -= least
        for at, value in enumerate(values):
            scores[at] += (value - least) / span / 3 if span else 0.0
    return scores


def give_up(
    candidates: Sequence[Candidate], need_blocks: int, rule: str
) -> list[Candidate]:
    """The candidates that a rule gives up, in its order; all if all are too few.

    Equal ones go by program and prefix, whatever order they come in.

    Raises:
        InputError: for an unknown rule.
    """
    if rule not in RULES:
        raise InputError(f"no release rule {rule!r}; there are {', '.join(RULES)}.")
    key = RULES[rule]
    scored = zip(size_scores(candidates), candidates, strict=True)
    order = sorted(scored, key=lambda s: (key(s[1], s[0]), s[1].program, s[1].prefix))
    found, freed = [], 0
    for _, one in order:
        if freed >= need_blocks:
            break
        found.append(one)
        freed += one.reclaimable
    return found


def optimum(
    candidates: Sequence[Candidate], losses: Sequence[float], need_blocks: int
) -> tuple[int, ...]:
    """Indices of the set of least loss that frees the need; of equals the smallest.

    Equal sets of one size go by program and prefix. Where all are too few, all.

    Args:
        candidates: n of them, at most `MOST_CANDIDATES`.
        losses: [n], what each cost in the end, 0 for one that never returned.
        need_blocks: to be freed.

    Raises:
        InputError: for more candidates than can be searched, or losses that are not
            one a candidate.

    Example:
        >>> pair = [Candidate(k, 0, 9.0, 1.0, n, n) for k, n in enumerate((9, 10))]
        >>> optimum(pair, [0.9, 1.1], 10)
        (1,)
    """
    n = len(candidates)
    if n > MOST_CANDIDATES:
        raise InputError(
            f"{n} candidates have {2**n:,} sets; the search takes {MOST_CANDIDATES} "
            "candidates. Ask with fewer, or compare rules with each other."
        )
    if len(losses) != n:
        raise InputError(f"{len(losses)} losses of {n} candidates; give one for each.")
    order = sorted(range(n), key=lambda k: candidates[k][:2])
    sets = (s for size in range(n + 1) for s in combinations(order, size))
    enough = (
        s for s in sets if sum(candidates[k].reclaimable for k in s) >= need_blocks
    )
    # fsum: two sets of one loss must not differ by the order of adding. min keeps the
    # first, which is the smallest set, and of these the first by name.
    best = min(enough, key=lambda s: math.fsum(losses[k] for k in s), default=order)
    return tuple(best)


def regret(
    candidates: Sequence[Candidate],
    losses: Sequence[float],
    need_blocks: int,
    given_up: Iterable[Candidate],
) -> Regret:
    """What a set lost beyond the optimum.

    Raises:
        InputError: as `optimum`; if a candidate is given up that there is not.

    Example:
        >>> pair = [Candidate(k, 0, 9.0, 1.0, n, n) for k, n in enumerate((9, 10))]
        >>> found = regret(pair, [0.9, 1.1], 10, give_up(pair, 10, "blocks"))
        >>> round(found.regret, 6), round(found.normalised, 6)
        (0.9, 0.818182)
    """
    best = optimum(candidates, losses, need_blocks)
    least = math.fsum(losses[k] for k in best)
    place = {one: k for k, one in enumerate(candidates)}
    try:
        loss = math.fsum(losses[place[one]] for one in given_up)
    except KeyError as error:
        raise InputError(f"{error.args[0]} is none of the candidates.") from None
    more = loss - least
    return Regret(loss, least, more, more / max(abs(least), TINY))
