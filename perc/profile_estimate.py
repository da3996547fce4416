"""Tokens of a text without a tokenizer: an estimate, and how far off it is.

A text is cut at white space, at every ASCII punctuation character, where a lower-case
letter is followed by an upper-case one, and between digits and letters. A piece of n
characters costs ceil(n / c) tokens: c is 2 if it has a character beyond ASCII, 3 for
digits, 4 if it mixes upper and lower case, 5 otherwise; punctuation costs 1.

`subwords` gives the pieces of that length themselves, so that two texts that begin
alike have tokens that begin alike: an estimate can be cut into blocks as well.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perc.errors import InputError

_PUNCTUATION = r"!-/:-@\[-`{-~"
_PARTS = re.compile(rf"[{_PUNCTUATION}]|[^\s{_PUNCTUATION}]+")
_CUTS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_BEYOND_ASCII, _DIGITS, _MIXED, _PLAIN = 2, 3, 4, 5  # characters of a token


class EstimateError(NamedTuple):
    """Estimates beside counts of a tokenizer; relative, so 0.1 is 10 % too many."""

    texts: int
    total: float  # of the sums over all texts
    median: float  # absolute, over texts
    p95: float  # absolute


def estimate_tokens(text: str) -> int:
    """Estimated tokens of a text, at least 1.

    Example:
        >>> [estimate_tokens(text) for text in ("hello, world!", "camelCaseWord", "")]
        [4, 3, 1]

    References:
        CachePilot's tokenizer, the same numbers.
    """
    return max(1, sum(-(-len(piece) // _size(piece)) for piece in _pieces(text)))


def subwords(text: str) -> list[str]:
    """The pieces that `estimate_tokens` counts; none for a text without any.

    Example:
        >>> subwords("HTTPServer2 ok")
        ['HTTP', 'Serv', 'er', '2', 'ok']
    """
    found = []
    for piece in _pieces(text):
        size = _size(piece)
        found += [piece[at : at + size] for at in range(0, len(piece), size)]
    return found


def estimate_error(estimates: Sequence[int], counts: Sequence[int]) -> EstimateError:
    """How far estimates are from the counts of a tokenizer, text by text.

    Texts of which the tokenizer makes nothing are left out.

    Raises:
        InputError: if there are not as many of one as of the other, or no text.

    Example:
        >>> estimate_error([11, 8], [10, 10])
        EstimateError(texts=2, total=-0.05, median=0.15, p95=0.195)
    """
    guess, real = np.asarray(estimates, np.float64), np.asarray(counts, np.float64)
    if guess.shape != real.shape or not (real > 0).any():
        raise InputError(
            f"{guess.size} estimates for {real.size} counts; give one each, and at "
            "least one text of a token or more."
        )
    guess, real = guess[real > 0], real[real > 0]
    off = np.abs(guess / real - 1)
    median, p95 = np.percentile(off, [50, 95])
    return EstimateError(
        len(real),
        float(round(guess.sum() / real.sum() - 1, 12)),
        float(round(median, 12)),
        float(round(p95, 12)),
    )


def _pieces(text: str) -> list[str]:
    return [piece for part in _PARTS.findall(text) for piece in _CUTS.split(part)]


def _size(piece: str) -> int:
    if not piece.isascii():
        return _BEYOND_ASCII
    if piece.isdigit():
        return _DIGITS
    return _PLAIN if piece in (piece.lower(), piece.upper()) else _MIXED
