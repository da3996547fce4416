"""A learned policy as one key a use, for engines that cannot price blocks as they age.

    score = time of the use + lease at one price          [s, the trace's clock]

The price of room, in hits per block and second, stands for the capacity: the dearer,
the smaller the cache. `perc.policies.learned` needs no price and is the better policy
where an engine can ask for the worth of a block by its age.

>>> from perc.policies.learned import Network
>>> import numpy as np
>>> f = lambda *shape: np.zeros(shape, np.float32)
>>> bins, prices = np.float32([0, 60]), np.float32([0.001, 0.1])
>>> layers = ((f(1, 1, 2), f(1, 2)),)
>>> net = Network("hazard", ("turn",), bins, prices, f(1), f(1) + 1, layers, f(3, 2))
>>> lease_key(net, 0.01).uses
('time_s', 'history')
"""

import jax
import jax.numpy as jnp
import numpy as np

from perc.errors import check_number
from perc.history import NAMES
from perc.policies.learned import (
    Network,
    apply,
    best_rates,
    check,
    normalised,
    with_price,
)
from perc.types import Features, Policy

REFUSED = -1e30  # score of what should not be kept at all


def lease_key(network: Network, price: float, *, bypass: bool = False) -> Policy:
    """Keeps a block until its lease ends; the lease that ends first leaves first.

    A lease network is asked for its mean lease at that price (at the nearest that it
    knows). Of a hazard network it is the age at which a block's worth falls below the
    price. A block that no stay pays for has no lease and leaves before all others: of a
    lease network, one whose most likely choice by far (more than half) is none.

    Args:
        network: from `perc.train.fit` (`perc.policies.learned.network_of`).
        price: hits per block and second; between `network.prices` is what it knows.
        bypass: admission. The running request's own blocks may be refused.

    Returns:
        A policy whose score is in seconds on the trace's clock, safe for prefixes
        (`Policy.chain`).

    Raises:
        InputError: if the price is not above 0, or the network's arrays do not fit.

    References:
        The lease at a price on room: see `perc.policies.learned`. One key set at each
        use, compared with newer ones: Cao and Irani 1997, "Cost-aware WWW proxy caching
        algorithms" (USITS).
    """
    check(network)
    check_number("lease_key", "price", price, above=True)
    low, high = np.log(network.prices)
    place = np.clip((np.log(price) - low) / (high - low), 0, 1)
    params = {
        "price": jnp.float32(price),
        "place": jnp.float32(place),
        "columns": jnp.int32(network.columns()),
        "edges_s": jnp.asarray(network.edges_s),
        "mean": jnp.asarray(network.mean),
        "scale": jnp.asarray(network.scale),
        "layers": jax.tree.map(jnp.asarray, network.layers),
    }
    score = _of_hazards if network.head == "hazard" else _of_leases
    uses = ("time_s", "history")
    return Policy(params, score, "lease_key", uses=uses, chain=True, bypass=bypass)


def _of_leases(p: dict, f: Features) -> jax.Array:
    x = _inputs(p, f)
    x = with_price(x, jnp.full(len(x), p["place"]))
    keep = jax.lax.map(lambda net: jax.nn.softmax(apply(net, x)), p["layers"])
    keep = keep.mean(axis=0)
    return _key(f, keep @ p["edges_s"], keep[:, 0] > 0.5)


def _of_hazards(p: dict, f: Features) -> jax.Array:
    x = _inputs(p, f)
    hazard = jax.lax.map(lambda net: jax.nn.sigmoid(apply(net, x)), p["layers"])
    pays = best_rates(hazard.mean(axis=0), p["edges_s"]) >= p["price"]
    bins = jnp.cumprod(pays, axis=1).sum(axis=1)  # before the first that does not
    ends = jnp.append(p["edges_s"], 2 * p["edges_s"][-1])
    return _key(f, ends[bins], bins == 0)


def _inputs(p: dict, f: Features) -> jax.Array:
    rows = jnp.asarray(f.history).reshape(-1, len(NAMES))[:, p["columns"]]
    return normalised(rows, p["mean"], p["scale"])


def _key(f: Features, lease_s: jax.Array, refused: jax.Array) -> jax.Array:
    time_s = jnp.asarray(f.time_s, jnp.float32)
    key = time_s + lease_s.reshape(time_s.shape)
    return jnp.where(refused.reshape(time_s.shape), REFUSED, key)
