"""How far from the cheapest set is greedy eviction, on CachePilot's mix of sessions?

    python benchmarks/selection.py [--draws 300]

For each need, draws 48 sessions at a time and evicts by cost per block (`greedy`), at
most twice the optimum (`two_approximation`, without its redundant picks), and exactly,
all draws in one call each. Every ratio is the cost of the rule by the cost of the exact
choice. Beside each row of the greedy stand the reference values of an independent
calculation, from the same seed. All costs are those that a policy expects to pay; none
of this replays traffic.
"""

import functools
from typing import NamedTuple

import common
import jax
import numpy as np
import tyro

from perc import select
from perc.select.session_mix import session_mix

SEED = 0
REFERENCE = {  # by need: mean, 95th percentile, max, suboptimal, mended greedy
    1: (50.598, 108.926, 295.882, 1.00, 1.000),
    4: (16.692, 35.922, 58.930, 0.99, 1.115),
    8: (9.268, 18.771, 29.181, 0.99, 1.147),
    16: (5.456, 11.158, 18.318, 0.99, 1.205),
    32: (2.765, 5.920, 9.449, 0.96, 1.623),
    64: (1.496, 2.783, 5.257, 0.60, 1.340),
    128: (1.099, 1.547, 3.512, 0.26, 1.042),
    256: (1.390, 2.478, 3.995, 0.54, 1.202),
}
ROWS = (
    "greedy / exact, mean",
    "95th percentile",
    "max",
    "share of draws above 1",
    "greedy without redundant picks, or best single",
)


class Found(NamedTuple):
    """What one need gave over all draws."""

    greedy: tuple[float, ...]  # as the rows of the table
    bounded: tuple[float, float]  # mean and max of the two-approximation
    decisions_ms: dict[str, float]  # CPU time of one decision, by rule


def main(draws: int = 300, repeats: int = 5) -> None:
    """Prints the table.

    Args:
        draws: of 48 sessions, for each need.
        repeats: of each timing.
    """
    common.print_conditions(seed=SEED)
    generator = np.random.default_rng(SEED)
    found = {need: measure(generator, need, draws, repeats) for need in REFERENCE}
    needs = [f"{need}" for need in found]
    table = common.table("need in blocks", "", *needs)
    for i, name in enumerate(ROWS):
        table.add_row(name, *(f"{f.greedy[i]:,.3f}" for f in found.values()))
        reference = (f"{row[i]:,.3f}" for row in REFERENCE.values())
        table.add_row("    reference", *reference)
    for i, name in enumerate(("two-approximation, mended / exact, mean", "max")):
        table.add_row(name, *(f"{f.bounded[i]:,.3f}" for f in found.values()))
    for rule in ("greedy", "exact"):
        row = (f"{f.decisions_ms[rule]:,.3f}" for f in found.values())
        table.add_row(f"CPU ms a decision, {rule}", *row)
    common.console.print(table)


def measure(
    generator: np.random.Generator, need: int, draws: int, repeats: int
) -> Found:
    """Ratios of one need; draws that cannot meet it are left out."""
    rows = [session_mix(generator) for _ in range(draws)]
    rows = [(blocks, loss) for blocks, loss in rows if blocks.sum() >= need]
    loss = np.stack([loss for _, loss in rows])
    items = select.items(np.stack([blocks for blocks, _ in rows]), loss)
    exact = jax.jit(jax.vmap(functools.partial(select.exact, need=need, most=need)))
    greedy = jax.jit(jax.vmap(functools.partial(select.greedy, need=need)))
    rules = {"greedy": greedy, "exact": exact}
    best = paid(exact(items), loss)
    ratio = paid(greedy(items), loss) / best
    bounded = paid(mended(select.two_approximation, items, need), loss) / best
    single = paid(jax.vmap(lambda i: select.cheapest_single(i, need))(items), loss)
    cheaper = np.fmin(paid(mended(select.greedy, items, need), loss), single) / best
    high = float(np.percentile(ratio, 95))
    above = float(np.mean(ratio > 1 + 1e-6))
    spent = {
        name: min(
            common.repeat(lambda rule=rule: jax.block_until_ready(rule(items)), repeats)
        )
        for name, rule in rules.items()
    }
    return Found(
        (float(ratio.mean()), high, float(ratio.max()), above, float(cheaper.mean())),
        (float(bounded.mean()), float(bounded.max())),
        {name: 1e3 * seconds / len(rows) for name, seconds in spent.items()},
    )


def mended(rule, items: select.Items, need: int) -> select.Choice:
    """A rule's choices, less what they do not need."""
    return jax.vmap(lambda i: select.drop_redundant(i, rule(i, need), need))(items)


def paid(choice: select.Choice, loss: np.ndarray) -> np.ndarray:
    """Cost of each draw in double precision, nan where nothing was enough."""
    cost = np.where(choice.mask, loss, 0).sum(axis=1)
    return np.where(choice.enough, cost, np.nan)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
