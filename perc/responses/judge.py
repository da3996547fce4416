"""How often a semantic hit gave the answer to another question.

    false-hit ratio = semantic hits whose entry answers another question / semantic hits

It takes questions with labels, two of which are equal where one answer does for both.
The threshold is a choice between hits and wrong answers; `by_threshold` shows it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from perc.errors import InputError
from perc.responses.cache import Settings, empty_responses, look_up, store
from perc.responses.queries import Query


class Judged(NamedTuple):
    """A log of questions through a cache."""

    threshold: float | None
    questions: int
    exact: int  # hits
    semantic: int  # hits
    false: int  # semantic hits that answered another question
    missed: int  # misses although an answer was there
    evicted: int

    @property
    def hit_ratio(self) -> float:
        """All hits / questions."""
        return (self.exact + self.semantic) / max(self.questions, 1)

    @property
    def false_hit_ratio(self) -> float:
        """False / semantic hits, 0 if there is none."""
        return self.false / self.semantic if self.semantic else 0.0


def judge(
    settings: Settings,
    questions: Sequence[Query],
    labels: Sequence[Hashable],
    *,
    arrival_s: Sequence[float] | None = None,
) -> Judged:
    """Asks questions in their order; what is not found is answered, and stored.

    Args:
        settings: of the cache.
        questions: R of them.
        labels: [R], equal where one answer does for both.
        arrival_s: [R], not falling; None: one a second.

    Raises:
        InputError: if the columns differ in length, or time runs backwards.
    """
    times = list(range(len(questions))) if arrival_s is None else list(arrival_s)
    if not len(questions) == len(labels) == len(times):
        raise InputError(
            f"{len(questions)} questions, {len(labels)} labels, {len(times)} times; "
            "give one of each."
        )
    if any(b < a for a, b in zip(times, times[1:], strict=False)):
        raise InputError("arrival_s falls; sort the questions by time.")
    size = len(questions[0].embedding) if len(questions) else 1
    state = empty_responses(settings, embedding=size)
    false = missed = 0
    for asked, label, now_s in zip(questions, labels, times, strict=True):
        live = state.answer[state.held & (state.expires_s > now_s)]
        state, found = look_up(settings, state, asked, now_s=now_s)
        if found.kind == "semantic":
            false += found.answer != label
        elif found.kind == "miss":
            missed += label in set(live)
            state, _ = store(settings, state, asked, label, now_s=now_s)
    tally = state.tally
    return Judged(
        threshold=settings.threshold,
        questions=len(questions),
        exact=tally.exact,
        semantic=tally.semantic,
        false=false,
        missed=missed,
        evicted=tally.evicted,
    )


def by_threshold(
    settings: Settings,
    questions: Sequence[Query],
    labels: Sequence[Hashable],
    thresholds: Sequence[float],
    *,
    arrival_s: Sequence[float] | None = None,
) -> list[Judged]:
    """`judge` at each threshold, everything else equal."""
    return [
        judge(
            replace(settings, threshold=threshold),
            questions,
            labels,
            arrival_s=arrival_s,
        )
        for threshold in thresholds
    ]
