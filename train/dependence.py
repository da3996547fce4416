"""What a network thinks a block is worth if one input had another value.

    log worth(v, age) = mean over runs of log worth(run with the input set to v, age)

It is the network's own answer, before it is rounded to a class; logarithms, because
only the order counts, and a few blocks that are used all the time would outweigh all
others. Inputs that go together are set apart here: a first turn with a long session age
is asked for as well.

References:
    Friedman 2001, "Greedy function approximation" (Annals of Statistics 29), section
    8.2, partial dependence.
"""

from collections.abc import Sequence

import numpy as np

from perc.explanation import Dependence, natural
from perc.history import NAMES
from perc.policies.learned import Network
from perc.train.decisions import MINUTE_S

SAMPLE = 500  # runs that the mean is over
POINTS = 16  # values of an input, at most


def dependences(
    network: Network, rows: np.ndarray, inputs: Sequence[str], *, seed: int
) -> list[Dependence]:
    """Partial dependence of the worth on each of some inputs, alone.

    Args:
        network: what is asked.
        rows: f32[S, len(NAMES)], history of the runs that count.
        inputs: of the network.
        seed: of the draw of runs.
    """
    draws = np.random.default_rng(seed)
    drawn = rows[draws.permutation(len(rows))[:SAMPLE]]
    bins = ages_of(network)
    found = []
    for name in inputs:
        column = NAMES.index(name)
        grid = grid_of(rows[:, column])
        asked = np.repeat(drawn[None], len(grid), axis=0)
        asked[:, :, column] = grid[:, None]
        flat = network.log_worths(asked.reshape(-1, rows.shape[1]))
        log_worth = flat.astype(np.float64).reshape(len(grid), len(drawn), -1)
        worth = MINUTE_S * np.exp(log_worth.mean(axis=1)[:, bins])  # f64[V, A]
        found.append(
            Dependence(
                input=name,
                values=natural(name, grid).tolist(),
                ages_s=network.edges_s[bins].tolist(),
                worth=worth.T.tolist(),
            )
        )
    return found


def ages_of(network: Network) -> list[int]:
    """Three bins of age to show: the first, and those at a third and two thirds."""
    count = len(network.edges_s)
    return sorted({0, count // 3, 2 * count // 3})


def grid_of(column: np.ndarray) -> np.ndarray:
    """Values f32[V] of an input that occur, ascending, evenly far apart as may be."""
    occur = np.unique(column)
    wanted = np.linspace(occur[0], occur[-1], POINTS)
    nearest = np.abs(occur[None] - wanted[:, None]).argmin(axis=1)
    return occur[np.unique(nearest)]
