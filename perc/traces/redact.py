"""A trace that may leave the house: without the words that its file had.

A `Trace` has no prompts and no names of sessions: blocks and sessions are numbers, in
order of first appearance, and times count from the first request. What is left of its
file's words are the names of request kinds and where it came from.
"""

from dataclasses import replace

from perc.history import TOOL_STOPS, TURN_STOPS
from perc.types import Trace

# Policies read these.
KNOWN = frozenset({"request", "unknown", *TOOL_STOPS, *TURN_STOPS})
SOURCE = "a redacted trace"


def redacted(trace: Trace) -> Trace:
    """The same traffic under neutral names.

    Kinds are numbered in their order in the trace, but for the stop reasons that
    policies know (`perc.history`), alone or after a colon. Times, lengths, and who
    shares what stay: they are what a trace is for, and tell how many people ask what
    is long and when.

    Example:
        >>> import perc
        >>> trace = replace(perc.make("chat", requests=5), kinds=("acme:tool_use",))
        >>> redacted(trace).kinds
        ('kind 1:tool_use',)
    """
    kinds = tuple(_neutral(kind, at) for at, kind in enumerate(trace.kinds, 1))
    return replace(trace, source=SOURCE, kinds=kinds)


def _neutral(kind: str, number: int) -> str:
    _, _, stop = kind.rpartition(":")
    if kind in KNOWN:
        return kind
    return f"kind {number}:{stop}" if stop in KNOWN else f"kind {number}"
