"""How fast can a network play a trace? Accesses per second of one core.

    python benchmarks/rollouts.py [TRACE]

game    what training by ttl, reinforce and evolution does: the network is asked once a
        run of blocks, a lease is drawn for each, and its reward is counted
cache   a whole cache: network, keys, their order (sorting), and an exact replay at one
        capacity, through `lease_key`

What is remembered of each access (`perc.history`) is computed once a trace and shown
apart. Times are CPU seconds of all threads, the least of some repeats.
"""

from pathlib import Path
from typing import Annotated

import common
import jax
import jax.numpy as jnp
import numpy as np
import tyro

from perc.history import history, runs
from perc.policies.learned import Network, network_of, price_at
from perc.policies.learned_key import lease_key
from perc.ranks import chain_worth, ranks
from perc.replay import replay
from perc.train.examples import examples
from perc.train.fit import fit
from perc.train.leases import deals, logits, rewards
from perc.types import Features, Trace


def main(
    trace: Annotated[
        tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="TRACE")
    ] = None,
    *,
    repeats: int = 10,
    seed: int = 0,
    share: float = 0.05,
) -> None:
    """Measures.

    Args:
        trace: file of a trace; the embedded chat traffic by default.
        repeats: of each measurement.
        seed: of the network and the leases.
        share: capacity of the cache, as a share of the distinct blocks.
    """
    traffic = common.open_trace(trace, None)
    common.print_conditions(traffic, seed=seed)
    policy = fit(traffic, "ttl", seed=seed, members=1, steps=1, held_out=0.0)
    network = network_of(policy)
    assert network is not None
    table = common.table(
        "One network, one rollout", "what", "ms, least / median", "M accesses/s"
    )
    measured = {
        "history, once a trace": lambda: history(traffic),
        "game": _game(traffic, network, seed),
        "cache": _cache(traffic, network, max(int(share * traffic.n_blocks), 1)),
    }
    for name, play in measured.items():
        play()
        seconds = common.repeat(play, repeats)
        speed = traffic.n_accesses / min(seconds) / 1e6
        table.add_row(name, common.min_median(seconds, 1e3), f"{speed:.1f}")
    common.console.print(table)


def _game(trace: Trace, network: Network, seed: int):
    found = examples(trace)
    x = network.normalised(found.history)
    deal = deals(x, found, network.edges_s, found.blocks)
    net = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), network.layers)
    prices = jnp.asarray(network.prices)

    @jax.jit
    def play(key):
        one, other = jax.random.split(key)
        place = jax.random.uniform(one, (len(deal.x),))
        lease = jax.random.categorical(other, logits(net, deal.x, place))[:, None]
        earned = rewards(deal, price_at(prices, place))
        return (deal.weight * jnp.take_along_axis(earned, lease, 1)[:, 0]).sum()

    return lambda: play(jax.random.key(seed)).block_until_ready()


def _cache(trace: Trace, network: Network, capacity: int):
    last, run = runs(trace)
    rows = history(trace)[last]
    time_s = trace.arrival_s.astype(np.float32)[trace.request[last]]
    keyed = lease_key(network, float(np.sqrt(network.prices.prod())))
    score = jax.jit(keyed.score)

    def play():
        keys = score(keyed.params, Features(time_s=time_s, history=rows))
        order = ranks(trace, chain_worth(trace, np.asarray(keys)[run]))
        return np.asarray(replay(trace, order, [capacity]).blocks).sum()

    return play


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
