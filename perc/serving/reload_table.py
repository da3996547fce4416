"""Seconds to compute a prefix again, from measured times instead of a formula.

    R(n) = median over pairs of (TTFT without the prefix - TTFT with it)

at the lengths that were measured, straight lines between them. A profile says nothing
about other lengths: what it does there is declared, and by default it refuses.

References:
    zhengjiahong-ai, LLM-KV-Cache-Optimization: its prefill profile, 16 to 512 tokens.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

from perc.errors import InputError, check_number, check_whole

Beyond = Literal["refuse", "linear"]


@dataclass(frozen=True)
class ReloadTable:
    """Measured seconds by length; to be called with tokens.

    Raises:
        InputError: for fewer than two lengths, lengths that do not rise, or a time
            that is no number of seconds.

    Example:
        >>> table = ReloadTable((16, 32, 128), (0.00952, 0.0118, 0.04975))
        >>> round(table(24), 5), round(table(128), 5)
        (0.01066, 0.04975)
    """

    tokens: tuple[int, ...]  # [n], rising
    seconds: tuple[float, ...]  # [n]
    beyond: Beyond = "refuse"  # or the line of the two nearest lengths

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.seconds) or len(self.tokens) < 2:
            raise InputError(
                f"a reload table of {len(self.tokens)} lengths and "
                f"{len(self.seconds)} times; give two lengths or more, a time each."
            )
        for before, after in zip((0, *self.tokens), self.tokens, strict=False):
            check_whole("a reload table", "tokens", after, before + 1, 2**31 - 1)
        for value in self.seconds:
            check_number("a reload table", "seconds", value)
        if self.beyond not in ("refuse", "linear"):
            raise InputError(
                f"a reload table: beyond is {self.beyond!r}; there are refuse, linear."
            )

    def __call__(self, tokens: int) -> float:
        """Seconds for a prefix.

        Raises:
            InputError: for a length that was not measured around, where that is
                refused.
        """
        if not self.tokens[0] <= tokens <= self.tokens[-1] and self.beyond == "refuse":
            raise InputError(
                f"a prefix of {tokens} tokens: measured were {self.tokens[0]} to "
                f'{self.tokens[-1]}. Measure it, or say beyond="linear".'
            )
        at = min(max(bisect_left(self.tokens, tokens), 1), len(self.tokens) - 1)
        (low, high), (begin, end) = (
            column[at - 1 : at + 1] for column in (self.tokens, self.seconds)
        )
        value = begin + (end - begin) * (tokens - low) / (high - low)
        return max(value, 0.0)  # a line that falls goes below 0 in the end


def measured_reload(
    pairs: Mapping[int, Iterable[tuple[float, float]]], *, beyond: Beyond = "refuse"
) -> ReloadTable:
    """A table from pairs (TTFT of a miss, TTFT of a hit) in seconds, by tokens.

    Raises:
        InputError: as `ReloadTable`; for a length without a pair, or whose median miss
            is faster than the hit.

    Example:
        >>> measured_reload({16: [(3.0, 1.0), (9.0, 1.0), (4.0, 1.0)], 32: [(5, 1)]})
        ReloadTable(tokens=(16, 32), seconds=(3.0, 4), beyond='refuse')
    """
    found = {}
    for tokens, times in sorted(pairs.items()):
        gaps = [miss - hit for miss, hit in times]
        if not gaps or median(gaps) < 0:
            what = "no pair" if not gaps else "misses that are faster than hits"
            raise InputError(f"{tokens} tokens: {what}; measure again.")
        found[tokens] = median(gaps)
    return ReloadTable(tuple(found), tuple(found.values()), beyond)
