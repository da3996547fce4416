"""Scores of a static policy for the blocks of one request, while a server runs."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from perc.bridges.live_history import Visit
from perc.bridges.uses import Facts, Run
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.features import (
    FREQUENCY_CLASSES,
    KIND_CLASSES,
    TURN_CLASSES,
)
from perc.history import NAMES
from perc.shapes import pad
from perc.types import Features, Policy

# Features that are equal for all blocks of a request: their scores are remembered.
OF_REQUEST = ("priority", "turn", "kind", "input_tokens", "request_blocks")
# Equal along a run, the blocks that one request used last: scored once for all of them.
OF_RUN = ("time_s", "history", "step", "tokens", "frequency", "resume_p")
OF_BLOCK = ("depth", "prefix_tokens", "recompute_s")
LIVE = (*OF_REQUEST, *OF_RUN, *OF_BLOCK)
REMEMBERED = 4096
# Rows that are asked for at once: shapes between are compiled before the first request.
LEAST, MOST = 8, 512


class LiveKeys:
    """Keys of blocks by a policy whose score depends on the request and the block."""

    def __init__(
        self, policy: Policy, block_tokens: int, *, cost: PrefillCost = DEFAULT_COST
    ):
        unknown = [name for name in policy.uses if name not in LIVE]
        if unknown:
            raise InputError(
                f"policy {policy.name}: a running server cannot tell it "
                f"{', '.join(unknown)}; it knows {', '.join(LIVE)}."
            )
        self._policy = policy
        self._block_tokens = block_tokens
        self._cost = cost
        self._params = jax.tree.map(np.asarray, policy.params)
        self._score = jax.jit(policy.score)
        self._in_numpy = self._answers_in_numpy()
        self._of_request = all(name in OF_REQUEST for name in policy.uses)
        self._of_block = any(name in OF_BLOCK for name in policy.uses)
        self._seen: OrderedDict[tuple[Any, ...], float] = OrderedDict()
        self._returns = _Returns()
        self._compile_ahead()

    def keys(
        self,
        facts: Facts,
        turn: int,
        runs: Sequence[Run],
        step: int,
        now_s: float,
        visit: Visit | None = None,
    ) -> Sequence[float | np.ndarray]:
        """Scores of the blocks of each run; the lowest leaves first.

        One number a run where its blocks have the same, else f32[blocks of the run]. A
        policy that uses `history` needs the visit.
        """
        if self._of_request:
            return [self._by_request(facts, turn, runs[-1].stop)] * len(runs)
        values = self._features(_Asked(facts, turn, runs, step, now_s, visit))
        if self._in_numpy:
            key = self._policy.score(self._params, Features(**values))
            key = np.asarray(key, np.float32)
        else:
            key = self._ask_padded(values)
        if self._of_block:
            return [key[run.start : run.stop] for run in runs]
        return key.tolist()

    def _answers_in_numpy(self) -> bool:
        """Whether the score takes NumPy's arrays as they are: a call costs a tenth."""
        ones: dict[str, np.ndarray] = {
            name: np.ones((2, len(NAMES)) if name == "history" else 2, np.float32)
            for name in self._policy.uses
        }
        with jax.default_device(jax.devices("cpu")[0]):
            key = self._policy.score(self._params, Features(**ones))
        return isinstance(key, np.ndarray)

    def _compile_ahead(self) -> None:
        if self._of_request:
            self._by_request(Facts(), 1, 1)
        if self._of_request or self._in_numpy:
            return
        rows = LEAST
        while rows <= MOST:
            ends = [rows] if self._of_block else list(range(1, rows + 1))
            runs = [Run(a, b, None) for a, b in zip([0, *ends], ends, strict=False)]
            none = np.zeros((1, len(NAMES)), np.float32)
            visit = Visit(none, [0] * len(runs), rows, 0, 1, None)
            self._ask_padded(self._features(_Asked(Facts(), 1, runs, 0, 0.0, visit)))
            rows *= 2
        self._returns = _Returns()  # nothing has been asked yet

    def _by_request(self, facts: Facts, turn: int, n: int) -> float:
        known = {**facts._asdict(), "turn": turn, "request_blocks": n}
        name = tuple(known[name] for name in self._policy.uses)
        if name not in self._seen:
            if len(self._seen) >= REMEMBERED:
                self._seen.popitem(last=False)
            values = {k: np.int32([known[k]]) for k in self._policy.uses}
            self._seen[name] = float(self._ask(Features(**values))[0])
        return self._seen[name]

    def _ask_padded(self, values: dict[str, np.ndarray]) -> np.ndarray:
        n = len(next(iter(values.values())))
        found = []
        for start in range(0, n, MOST):
            part = {name: rows[start : start + MOST] for name, rows in values.items()}
            padded = {name: pad(rows, 1, LEAST) for name, rows in part.items()}
            found.append(self._ask(Features(**padded)))
        return np.concatenate(found)[:n]

    def _ask(self, values: Features) -> np.ndarray:
        with jax.default_device(jax.devices("cpu")[0]):
            key = self._score(self._policy.params, values)
        return np.asarray(key, np.float32)

    def _features(self, asked: "_Asked") -> dict[str, np.ndarray]:
        """Columns of what the policy uses: a row a run, or a block where it asks."""
        n = len(asked.runs)
        blocks = asked.runs[-1].stop
        lengths = [run.stop - run.start for run in asked.runs]
        size = self._block_tokens
        found = {}
        for name in self._policy.uses:
            if name in OF_BLOCK:
                depth = np.arange(blocks, dtype=np.int32)
                found[name] = self._of_depth(name, depth)
                continue
            if name == "tokens":
                column = np.full(n, size, np.int32)
            elif name == "resume_p":
                column = self._returns.resume_p(asked)
            else:
                column = _RUNS[name](asked, n)
            found[name] = np.repeat(column, lengths, 0) if self._of_block else column
        return found

    def _of_depth(self, name: str, depth: np.ndarray) -> np.ndarray:
        size = self._block_tokens
        if name == "depth":
            return depth
        if name == "prefix_tokens":
            return depth * size
        seconds = self._cost.recompute_s((depth + 1.0) * size, depth * float(size))
        return seconds.astype(np.float32)


class _Asked(NamedTuple):
    """A request whose blocks are to be scored."""

    facts: Facts
    turn: int
    runs: Sequence[Run]
    step: int
    now_s: float
    visit: Visit | None


# Features that are equal along a run, of each of `n` runs.
_RUNS: dict[str, Callable[[_Asked, int], np.ndarray]] = {
    "step": lambda a, n: np.full(n, a.step, np.int32),
    "time_s": lambda a, n: np.full(n, a.now_s, np.float32),
    "frequency": lambda a, n: np.array([_frequency(r) for r in a.runs], np.int32),
    "priority": lambda a, n: np.full(n, a.facts.priority, np.int32),
    "turn": lambda a, n: np.full(n, a.turn, np.int32),
    "kind": lambda a, n: np.full(n, a.facts.kind, np.int32),
    "input_tokens": lambda a, n: np.full(n, a.facts.input_tokens, np.int32),
    "request_blocks": lambda a, n: np.full(n, a.runs[-1].stop, np.int32),
    "history": lambda a, n: a.visit.rows[a.visit.row_of],  # pyright: ignore
}


def _frequency(run: Run) -> int:
    """Requests that have used the blocks of a run, this one included."""
    return run.old.frequency + 1 if run.old else 1


def classes_of(kind: int, turn: int, runs: Sequence[Run]) -> list[int]:
    """The class of each run in the feature `resume_p`: frequency, turn and kind."""
    turn = min(turn, TURN_CLASSES) - 1
    kind = min(kind, KIND_CLASSES - 1)
    base = FREQUENCY_CLASSES * (turn + TURN_CLASSES * kind)
    most = FREQUENCY_CLASSES - 1
    return [base + min(_frequency(run).bit_length() - 1, most) for run in runs]


class _Returns:
    """The feature `resume_p` of `perc.features`, kept up while requests end."""

    def __init__(self) -> None:
        size = FREQUENCY_CLASSES * TURN_CLASSES * KIND_CLASSES
        self._uses = [0] * size
        self._returns = [0] * size

    def resume_p(self, asked: _Asked) -> np.ndarray:
        """P(used again) f32[runs], by what is known; then counts these uses."""
        runs = asked.runs
        classes = classes_of(asked.facts.kind, asked.turn, runs)
        for run in runs:
            if run.old is not None:
                self._returns[run.old.cls] += run.stop - run.start
        found = [(self._returns[c] + 1) / (self._uses[c] + 4) for c in classes]
        for c, run in zip(classes, runs, strict=True):
            self._uses[c] += run.stop - run.start
        return np.array(found, np.float32)
