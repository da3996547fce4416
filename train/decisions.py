"""Requests that a policy served better or worse than LRU, and what it went by."""

from collections.abc import Iterator

import numpy as np

from perc.aged import worth_of
from perc.explanation import Example
from perc.reuse import age_bin
from perc.train.importance import Stage

MINUTE_S = 60


def decisions(
    stage: Stage, classes: np.ndarray, own: np.ndarray, lru: np.ndarray, count: int
) -> tuple[list[Example], list[Example]]:
    """The counted requests with the largest gains over LRU, and the largest losses.

    Of a session only the first of its largest is shown.

    Args:
        stage: of `stage_of`.
        classes: i32[S], of each run.
        own: i32[R], hits of the policy at the stage's capacity.
        lru: i32[R], hits of LRU.
        count: of each kind, at most.
    """
    worth = MINUTE_S * np.asarray(worth_of(stage.policy, stage.reuse))[0]  # f32[K, A]
    of_access = classes[stage.run]
    at_use = np.sort(worth[of_access, 0])

    def example(r: int) -> Example:
        return _example(stage, of_access, worth, at_use, r, int(own[r]), int(lru[r]))

    gain = own.astype(np.int64) - lru
    won = [example(r) for r in _largest(stage, gain, count)]
    lost = [example(r) for r in _largest(stage, -gain, count)]
    return won, lost


def _largest(stage: Stage, gain: np.ndarray, count: int) -> Iterator[int]:
    """Counted requests of positive gain, largest first, one a session."""
    shown: set[int] = set()
    for r in np.argsort(-gain, kind="stable"):
        session = int(stage.trace.session[r])
        if len(shown) == count or gain[r] <= 0:
            return
        if r >= stage.skip and session not in shown:
            shown.add(session)
            yield int(r)


def _example(
    stage: Stage,
    classes: np.ndarray,
    worth: np.ndarray,
    at_use: np.ndarray,
    r: int,
    own: int,
    lru: int,
) -> Example:
    """What is known of a request that two caches served unlike."""
    t = stage.trace
    some = np.arange(t.start[r] + min(own, lru), t.start[r] + max(own, lru))
    used = t.prev[some]  # all were in a cache, so they have been used
    order = np.argsort(t.arrival_s[t.request[used]], kind="stable")
    last = int(used[order[len(order) // 2]])
    idle = float(t.arrival_s[r] - t.arrival_s[t.request[last]])
    of_class = worth[classes[last]]
    then, now = of_class[0], of_class[min(int(age_bin(idle)), len(of_class) - 1)]
    below = np.searchsorted(at_use, [then, now]) / len(at_use)
    return Example(
        request=r + 1,
        session=int(t.session[r]),
        turn=int(t.turn[r]),
        input_tokens=int(t.input_tokens[r]),
        blocks=int(t.stop[r] - t.start[r]),
        hit_blocks=own,
        lru_hit_blocks=lru,
        last_request=int(t.request[last]) + 1,
        idle_s=idle,
        worth_then=float(then),
        below_then=float(below[0]),
        worth_now=float(now),
        below_now=float(below[1]),
    )
