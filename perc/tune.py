"""Which parameters a policy should have: searched on one part of a trace, judged on
the rest.

Random search draws configurations, successive halving spends little on poor ones: all
are replayed over a short start of the training part, the best over a longer one, and
so on. What comes after the training part is replayed once, after the choice is made.

    score = mean over capacities of (served share - served share of lru)

in points of the objective, which is a share of blocks, of tokens or of prefill seconds.
A difference weighs every capacity by what there is to win, where a ratio to LRU or to
the bound would weigh most the capacity at which the denominator is smallest.

References:
    Bergstra and Bengio 2012, "Random Search for Hyper-Parameter Optimization".
    Jamieson and Talwalkar 2016, "Non-stochastic Best Arm Identification and
    Hyperparameter Optimization", for successive halving.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from perc.bootstrap import COVERS, RESAMPLES, Measure
from perc.capacities import in_blocks
from perc.compare import Progress, check_blocks, describe
from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import InputError
from perc.tune_search import Rung, first_requests, halve
from perc.tune_verdict import Judged, judge
from perc.types import Policy, Trace

OBJECTIVES = {
    "recompute_s": Measure("saved_share"),
    "block_hit_ratio": Measure("block_hit_ratio"),
    "token_hit_ratio": Measure("token_hit_ratio"),
}
DEFAULT_CAPACITIES = (0.01, 0.02, 0.05, 0.1)
DIGITS = 4  # of a drawn value, so that what is printed is what was judged


@dataclass(frozen=True)
class Range:
    """Where a parameter is searched, both ends included."""

    low: float
    high: float
    log: bool = False  # uniform in the logarithm

    def __post_init__(self) -> None:
        wrong = not (math.isfinite(self.low) and math.isfinite(self.high))
        if wrong or self.low > self.high or (self.log and self.low <= 0):
            raise InputError(
                f"{self.low:g} to {self.high:g}{', log' if self.log else ''} is no "
                "range; give low:high, and low above 0 for low:high:log."
            )

    def draw(self, u: float) -> float:
        """The value at u in 0..1 of the range."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + u * (high - low))
        else:
            value = self.low + u * (self.high - self.low)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


Space = Mapping[str, Range]
SPACES: dict[str, Space] = {
    "perc": {
        "smoothing": Range(10, 10_000, log=True),
        "horizon_s": Range(60, 86_400, log=True),
        "cost_weight": Range(0, 1),
    },
    "perc_decay": {"tau_s": Range(10, 2000, log=True), "cost_weight": Range(0, 1)},
    "perc_published": {
        "horizon_s": Range(1, 3600, log=True),
        "default_rate_per_s": Range(1e-4, 1, log=True),
    },
    "hazard": {"horizon_s": Range(10, 3600, log=True)},
    "workload_aware": {"life_s": Range(1, 3600, log=True)},
    "ttl": {"queue_s": Range(1, 3600, log=True)},
    "t_lru": {"xi_tokens": Range(512, 65_536, log=True)},
    "slru": {"protected": Range(0.05, 0.95)},
    "s3fifo": {"small": Range(0.01, 0.5), "ghost": Range(0.1, 2.0)},
    "w_tinylfu": {"window": Range(0.01, 0.9), "protected": Range(0.05, 0.95)},
}


@dataclass(frozen=True)
class Tuning:
    """The answer of `tune`."""

    trace: dict  # what was replayed, plain numbers
    definitions: dict  # what each number means, and every option that shaped it
    policy: str
    parameters: dict[str, float]  # of the winner
    defaults: dict[str, float]  # what the search would have changed
    rungs: list[Rung]
    judged: Judged  # training and held-out scores, with intervals

    def as_dict(self) -> dict:
        """What `--json` prints."""
        found = asdict(self)
        return {**found, "rungs": [rung._asdict() for rung in self.rungs]}


def tune(
    trace: Trace,
    constructor: Callable[..., Policy],
    *,
    capacities: Iterable[int | float] = DEFAULT_CAPACITIES,
    space: Space | None = None,
    samples: int = 256,
    seed: int = 0,
    train: float = 0.5,
    objective: str = "recompute_s",
    halving: int = 4,
    cost: PrefillCost = DEFAULT_COST,
    bootstrap: int = RESAMPLES,
    progress: Progress | None = None,
) -> Tuning:
    """Searches the parameters of a policy on the first part of a trace.

    The default parameters compete in every round. Everything is a function of the
    arguments: the same ones give the same answer.

    Args:
        trace: the traffic.
        constructor: of the policy, such as `perc.policies.registry["perc"]`.
        capacities: blocks (int) or shares of the working set (float); one
            configuration has to serve them all.
        space: ranges by parameter; None takes those of `SPACES`.
        samples: configurations drawn, beside the default.
        seed: of the draws, and of the intervals.
        train: the first share of the requests, the only ones that the search sees.
        objective: recompute_s, block_hit_ratio or token_hit_ratio.
        halving: one in so many survives a round; 1 replays the whole training part
            for all.
        cost: prices recomputed tokens.
        bootstrap: samples of sessions for the intervals.
        progress: called after each configuration.

    Raises:
        InputError: for a trace without blocks, a parameter that the policy does not
            have, or a number out of range.
    """
    check_blocks(trace, required=True)
    default = constructor()
    space = _space(default.name, constructor, space)
    _check(samples, objective, halving, bootstrap)
    sizes = in_blocks(trace, capacities)
    training = first_requests(trace, _training_requests(trace, train))
    drawn = [{}, *_draw(space, constructor, samples, seed)]
    measure = OBJECTIVES[objective]
    candidates = [constructor(**values) for values in drawn]
    best, rungs = halve(
        candidates,
        training,
        sizes,
        measure,
        cost=cost,
        keep=halving,
        progress=progress,
    )
    defaults = _defaults(constructor, space)
    return Tuning(
        trace={
            **describe(trace),
            "training_requests": training.n_requests,
            "training_blocks": training.n_blocks,
        },
        definitions=_definitions(
            space,
            objective,
            cost,
            samples=samples,
            halving=halving,
            seed=seed,
            resamples=bootstrap,
        ),
        policy=default.name,
        parameters={**defaults, **drawn[best]},
        defaults=defaults,
        rungs=rungs,
        judged=judge(
            trace,
            training,
            candidates[best],
            default,
            sizes,
            measure,
            cost=cost,
            resamples=bootstrap,
            seed=seed,
        ),
    )


def _check(samples: int, objective: str, halving: int, bootstrap: int) -> None:
    if objective not in OBJECTIVES:
        raise InputError(
            f"no objective {objective!r}. There are: {', '.join(OBJECTIVES)}."
        )
    for name, value, least in (
        ("samples", samples, 1),
        ("halving", halving, 1),
        ("bootstrap", bootstrap, 0),
    ):
        if value < least:
            raise InputError(f"{name} is {value}, must be {least} or more.")


def _training_requests(trace: Trace, share: float) -> int:
    n = int(share * trace.n_requests) if 0 < share < 1 else 0
    blocks = int(trace.stop[n - 1]) if n else 0
    if not 0 < blocks < trace.n_accesses:
        raise InputError(
            f"a training share of {share} of {trace.n_requests:,} requests leaves one "
            "of the two parts empty; give a share between 0 and 1, such as 0.5."
        )
    return n


def _space(name: str, constructor: Callable[..., Policy], space: Space | None) -> Space:
    known = {
        key: parameter
        for key, parameter in inspect.signature(constructor).parameters.items()
        if parameter.annotation in (int, float)
    }
    if space is None:
        space = SPACES.get(name, {})
    if not space:
        raise InputError(
            f"no range is known for policy {name!r}. "
            + (
                f"Say which of {', '.join(known)} to search, such as --space "
                f"{next(iter(known))}=0.1:10:log."
                if known
                else "It has no parameters to tune."
            )
        )
    for key in space:
        if key not in known:
            raise InputError(
                f"policy {name!r} has no number {key!r} to tune. It has: "
                f"{', '.join(known) or 'none'}."
            )
    return space


def _draw(
    space: Space, constructor: Callable[..., Policy], samples: int, seed: int
) -> list[dict[str, float]]:
    """Configurations, uniform in each range; whole numbers where they are asked for."""
    parameters = inspect.signature(constructor).parameters
    points = np.random.default_rng(seed).random((samples, len(space)))

    def value(key: str, u: float) -> float:
        found = space[key].draw(u)
        return round(found) if parameters[key].annotation is int else found

    return [
        {key: value(key, float(u)) for key, u in zip(space, point, strict=True)}
        for point in points
    ]


def _defaults(constructor: Callable[..., Policy], space: Space) -> dict[str, float]:
    parameters = inspect.signature(constructor).parameters
    return {key: parameters[key].default for key in space}


def _definitions(
    space: Space,
    objective: str,
    cost: PrefillCost,
    *,
    samples: int,
    halving: int,
    seed: int,
    resamples: int,
) -> dict:
    shares = {
        "recompute_s": "prefill seconds saved / prefill seconds without a cache",
        "block_hit_ratio": "blocks of the longest resident prefix / blocks looked up",
        "token_hit_ratio": "prompt tokens in hit blocks / prompt tokens",
    }
    return {
        "objective": f"{objective}: {shares[objective]}",
        "score": "mean over the capacities of the share - the share of lru",
        "gap_closed": "(policy - lru) / (bound - lru) in the objective; the bound is "
        "exact for block hits without bypass, and a comparison elsewhere",
        "recompute_s": f"seconds to prefill what is not cached, {cost.name}: "
        f"{cost.s_per_token:.4g} s a token + {cost.s_per_token2:.4g} s a token squared",
        "space": {
            key: f"{r.low:g} to {r.high:g}{', log' if r.log else ''}"
            for key, r in space.items()
        },
        "search": f"{samples} samples beside the default, seed {seed}; 1 in {halving} "
        "survives a round",
        "held_out": "requests after the training part, the cache warm from it; never "
        "used for the choice",
        "interval": COVERS if resamples else "none: no bootstrap samples",
        "bootstrap": f"{resamples} samples, seed {seed}",
    }
