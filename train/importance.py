"""What each input of a network is worth: shuffle it, and count the hits that go.

An input is shuffled between runs (`perc.history.runs`), over the whole trace. So its
values stay what they were, but tell nothing of the block that they stand at. Inputs
that say the same stand in for each other: shuffling one of two alike shows little.

References:
    Breiman 2001, "Random forests" (Machine Learning 45), section 10; for any model:
    Fisher, Rudin and Dominici 2019, "All models are wrong, but many are useful" (JMLR
    20). On inputs that are alike: Strobl et al. 2008, "Conditional variable importance
    for random forests" (BMC Bioinformatics 9).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from perc.aged import AgedTraffic, aged_traffic, replay_rows
from perc.compare import Progress
from perc.explanation import Importance
from perc.history import NAMES, history, runs
from perc.metrics import ratio
from perc.policies.learned import Network, learned
from perc.reuse import Reuse
from perc.segments import cut
from perc.shapes import bucket
from perc.types import OnlinePolicy, Trace


class Stage(NamedTuple):
    """A trace and a network, made ready to ask for hits again and again."""

    trace: Trace
    policy: OnlinePolicy  # without a guard
    network: Network
    rows: np.ndarray  # f32[S, len(NAMES)], history of each run
    run: np.ndarray  # i64[N], the run of each access
    reuse: Reuse  # of all K classes of the network, at one epoch
    capacity: int  # blocks
    skip: int  # requests that are not counted

    def counted(self, hits: np.ndarray) -> float:
        """Block hit ratio over the counted requests, of hits i32[R]."""
        length = (self.trace.stop - self.trace.start)[self.skip :]
        return ratio(int(hits[self.skip :].sum(dtype=np.int64)), int(length.sum()))


def stage_of(trace: Trace, network: Network, capacity: int, skip: int) -> Stage:
    """Makes all that does not change when an input is shuffled."""
    policy = learned(network, guard=None)
    last, run = runs(trace)
    classes = len(network.worths)
    # What a learned policy pays does not depend on the epoch, nor on counts.
    counted = aged_traffic(trace, policy).reuse
    none = np.zeros((1, classes, 1), np.float32)
    reuse = counted._replace(
        epoch=np.zeros_like(counted.epoch), events=(none,), named=np.arange(classes)
    )
    rows = history(trace)[last]
    return Stage(trace, policy, network, rows, run, reuse, capacity, skip)


def traffic_of(stage: Stage, classes: np.ndarray) -> AgedTraffic:
    """The trace with a class i32[S] for each run, whatever the network says."""
    segments = cut(stage.trace, classes[stage.run])
    arrays = type(segments)(*map(jnp.asarray, segments))
    return AgedTraffic(arrays, stage.reuse, bucket(stage.trace.n_blocks))


def hits_of(stage: Stage, classes: np.ndarray) -> np.ndarray:
    """Leading resident blocks i32[R] of the policy, given the class of each run."""
    traffic = traffic_of(stage, classes)
    found = replay_rows(stage.trace, stage.policy, [stage.capacity], traffic)
    return found.blocks[0]


def importances(
    stage: Stage, *, repeats: int, seed: int, progress: Progress | None = None
) -> list[Importance]:
    """Importance of the network's inputs, the highest mean first, constant ones last.

    Args:
        stage: of `stage_of`.
        repeats: shuffles of each input, 1 or more.
        seed: of the shuffles; those of one input do not depend on the other inputs.
        progress: called after each input.
    """
    plain = stage.network.classes(stage.rows)
    whole = stage.counted(hits_of(stage, plain))
    found = []
    for name in stage.network.inputs:
        lost = [0.0] * repeats
        constant = bool(np.ptp(stage.rows[:, NAMES.index(name)]) == 0)
        for r in range(0 if constant else repeats):
            classes = stage.network.classes(shuffled(stage.rows, name, seed, r))
            if (classes != plain).any():
                lost[r] = 100 * (whole - stage.counted(hits_of(stage, classes)))
        mean = sum(lost) / repeats
        found.append(Importance(name, mean, min(lost), max(lost), constant))
        if progress:
            progress(len(found), len(stage.network.inputs), name)
    return sorted(found, key=lambda i: (i.constant, -i.mean))


def shuffled(rows: np.ndarray, name: str, seed: int, repeat: int) -> np.ndarray:
    """History f32[S, len(NAMES)] with one input drawn from other runs."""
    column = NAMES.index(name)
    draws = np.random.default_rng([seed, column, repeat])
    mixed = rows.copy()
    mixed[:, column] = draws.permutation(rows[:, column])
    return mixed
