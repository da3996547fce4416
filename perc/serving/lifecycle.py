"""What a server learns of programs: gaps of tools, waits, turns; and how long to keep.

A program is a session of turns. When a turn ends that is not its last, its prefix may
be kept for a time to live T, in the hope that the next turn comes before:

    T = argmax over T in {0, samples} of F(T) * benefit - T        the first maximum
    benefit = mean wait of those that came late * eta + R(prefix)

`F` is the share of gaps up to T, of the tool's own gaps if there are more than 100 of
them, else of all, `R` the seconds to compute the prefix again, and `eta` says how much
the turns so far tell of those to come.

References:
    Li et al. 2025, "Continuum" (arXiv 2511.02230). zhengjiahong-ai,
    LLM-KV-Cache-Optimization, for the release under pressure.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

THRESHOLD = 100  # more samples than that speak for themselves
WAITS = 100  # of the last ones the mean is taken


def share_until(samples: Sequence[float], time_s: float) -> float:
    """F: the share of ascending samples that are not above a time.

    >>> share_until([1.0, 2.0, 2.0, 5.0], 2.0)
    0.75
    """
    return bisect_right(samples, time_s) / len(samples)


def time_to_live(samples: Sequence[float], benefit_s: float) -> float:
    """T of ascending samples; 0 without any.

    >>> time_to_live([1, 2, 3, 4], 4.5)
    4
    >>> time_to_live([0.5, 0.5, 1, 20], 5)
    1
    """
    best, best_s = 0.0, 0.0
    if samples and samples[0] <= 0:
        best = share_until(samples, 0.0) * benefit_s
    for seconds in samples:
        value = share_until(samples, seconds) * benefit_s - seconds
        if value > best:
            best, best_s = value, seconds
    return best_s


def eta_of(turns: Iterable[int]) -> float:
    """-Pearson(turn, turns left) over all turns of completed programs but the last.

    1 with fewer than two pairs, or where one of the two does not vary.

    >>> [round(eta_of(n), 5) for n in [(4, 4), (2, 6), (3, 5, 8), (8,), (1, 1, 1)]]
    [1.0, 0.5, 0.46633, 1.0, 1.0]
    """
    pairs = [(i, n - i) for n in turns for i in range(1, n)]
    if len(pairs) < 2:
        return 1.0
    mean_x, mean_y = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    xy = sum((x - mean_x) * (y - mean_y) for x, y in pairs)
    xx = sum((x - mean_x) ** 2 for x, _ in pairs)
    yy = sum((y - mean_y) ** 2 for _, y in pairs)
    return 1.0 if xx == 0 or yy == 0 else -xy / (xx * yy) ** 0.5


def return_chance(
    samples: Sequence[float], elapsed_s: float, remaining_s: float
) -> float:
    """That a gap ends within `remaining_s`, given that it lasts since `elapsed_s`.

    1 without samples; 0 if no time is left or no sample is as long.

    >>> one = [0.5, 0.5, 1, 20]
    >>> cases = [(0, 1), (0.6, 0.5), (1, 10), (1, 19)]
    >>> [return_chance(one, *at) for at in cases]
    [0.75, 0.5, 0.0, 1.0]
    """
    if not samples:
        return 1.0
    past = share_until(samples, elapsed_s)
    if remaining_s <= 0 or past == 1:
        return 0.0
    return (share_until(samples, elapsed_s + remaining_s) - past) / (1 - past)


@dataclass
class Histories:
    """What was seen so far, in ascending order where a distribution is asked for."""

    threshold: int = THRESHOLD
    default_ttl_s: float = 0.0
    by_tool: dict[int | str, list[float]] = field(default_factory=dict)
    gaps_s: list[float] = field(default_factory=list)
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=WAITS))
    turns: list[int] = field(default_factory=list)

    def gap(self, tool: int | str, seconds: float) -> None:
        """A next turn came so long after the last one ended."""
        for samples in (self.by_tool.setdefault(tool, []), self.gaps_s):
            samples.insert(bisect_right(samples, seconds), seconds)

    @property
    def wait_s(self) -> float:
        """The mean of the last waits, 0 if there were none."""
        return sum(self.waits_s) / len(self.waits_s) if self.waits_s else 0.0

    def samples(self, tool: int | str) -> list[float] | None:
        """The gaps to go by; None: too few are known."""
        own = self.by_tool.get(tool, [])
        for samples in (own, self.gaps_s):
            if len(samples) > self.threshold:
                return samples
        return None

    def decide(self, tool: int | str, reload_s: float) -> tuple[float, list[float]]:
        """The time to live of a prefix, and a copy of the gaps that it goes by."""
        samples = self.samples(tool)
        if samples is None:
            return self.default_ttl_s, list(self.gaps_s)
        benefit_s = self.wait_s * eta_of(self.turns) + reload_s
        return time_to_live(samples, benefit_s), list(samples)
