"""Why a learned policy decides as it does: the nouns of `perc explain`.

`perc.train.explain` makes an `Explanation`, `perc.report.explain_tables` and
`explain_chart` show it.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

PICTURES = (".html", ".png", ".svg")  # what the names of charts may end in
TOKENS, SECONDS, COUNT, SHARE, FLAG = "tokens", "s", "", "share", "0 or 1"
# Unit and meaning of each of perc.history.NAMES, which has them in full.
INPUTS = {
    "input": (TOKENS, "length of the prompt"),
    "output": (TOKENS, "length of the answer"),
    "new": (TOKENS, "of the prompt, not seen before"),
    "seen": (SHARE, "of the prompt's blocks, seen before"),
    "filled": (SHARE, "how full its last block is"),
    "rate": (COUNT, "requests of the last minute"),
    "tools": (FLAG, "the request ended in a tool call"),
    "ended": (FLAG, "the request ended the turn"),
    "follows": (FLAG, "it goes on from an earlier prompt"),
    "typed": (TOKENS, "added to that prompt and its answer"),
    "before_input": (TOKENS, "length of that earlier prompt"),
    "before_output": (TOKENS, "length of its answer"),
    "since": (SECONDS, "time from that earlier request"),
    "siblings": (COUNT, "others that went on from it before"),
    "turn": (COUNT, "requests of the session so far"),
    "session_age": (SECONDS, "time from the session's first one"),
    "session_gap": (SECONDS, "time from the session's last one"),
    "mean_gap": (SECONDS, "mean time between the session's"),
    "prefix_users": (COUNT, "earlier requests of its first block"),
    "prefix_gap": (SECONDS, "time from the last of those"),
    "partial": (FLAG, "the block is not full"),
    "uses": (COUNT, "earlier uses of the block"),
    "gap": (SECONDS, "time from the last use of it"),
    "age": (SECONDS, "time from the first use of it"),
    "children": (COUNT, "distinct blocks seen after it"),
    "sessions": (COUNT, "sessions that used the block"),
    "depth": (COUNT, "blocks from the root to it"),
    "below": (COUNT, "blocks of the prompt after it"),
}


def natural(name: str, column: np.ndarray) -> np.ndarray:
    """Values f64[...] of an input in its unit: `perc.history` has log2(1 + x) of most.

    A time of `perc.history.NEVER_S` stands for never.
    """
    column, unit = np.asarray(column, np.float64), INPUTS[name][0]
    if unit in (SHARE, FLAG):
        return column
    found = np.exp2(column) - 1
    return found if unit == SECONDS else found.round()  # a float32 has lost the rest


@dataclass(frozen=True)
class Importance:
    """Points of block hit ratio that are lost when an input says nothing any more."""

    input: str  # of INPUTS
    mean: float  # over the shuffles
    low: float
    high: float
    constant: bool  # it has one value in the whole trace, so nothing can depend on it


@dataclass(frozen=True)
class Dependence:
    """Worth of a block if an input had another value, all else as it was: means."""

    input: str
    values: list[float]  # [V], ascending, in the input's unit
    ages_s: list[float]  # [A], how long the block has been idle
    worth: list[list[float]]  # [A][V], expected hits per block and minute


@dataclass(frozen=True)
class Example:
    """A request that the policy served otherwise than LRU, and why.

    Idle time and worth are those of one block, the middle one by idle time of those
    that one of the two caches still had and the other had not.
    """

    request: int  # from 1 on
    session: int
    turn: int
    input_tokens: int
    blocks: int
    hit_blocks: int
    lru_hit_blocks: int
    last_request: int  # that used the block, from 1 on
    idle_s: float  # from then to this request
    worth_then: float  # expected hits per block and minute, when last used
    below_then: float  # share of all uses of blocks that were thought worth less
    worth_now: float  # the same after the idle time
    below_now: float

    @property
    def gain(self) -> int:
        """Blocks that it hit more than LRU."""
        return self.hit_blocks - self.lru_hit_blocks


@dataclass(frozen=True)
class Guarded:
    """What the guard does."""

    stored: bool  # the policy has it; otherwise this is what the default one would do
    block_hit_ratio: float
    trusted: float  # share of the counted requests served in the policy's order


@dataclass(frozen=True)
class Explanation:
    """The answer of `perc.train.explain.explain`; ratios are of the counted part."""

    trace: dict[str, Any]
    definitions: dict[str, str]
    capacity_blocks: int
    block_hit_ratio: float  # of the policy without a guard
    lru: float
    bound: float  # of belady
    guard: Guarded
    inputs: list[Importance]  # the most important one first
    dependence: list[Dependence]  # of the first of them
    won: list[Example]  # largest gains over LRU
    lost: list[Example]  # largest losses
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)
