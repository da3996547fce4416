"""A learned policy as plain settings and arrays: how `perc.policies.store` files it.

Settings: `head`, `inputs`, the number of `layers`, and the `guard` or null. Arrays:
those of `ARRAYS`, and `w0`, `b0`, `w1`, ... of the layers.

>>> from perc.policies.learned import Network, learned
>>> import numpy as np
>>> f = lambda *shape: np.zeros(shape, np.float32)
>>> bins, prices = np.float32([0, 60]), np.float32([0.001, 0.1])
>>> layers = ((f(1, 1, 2), f(1, 2)),)
>>> net = Network("hazard", ("turn",), bins, prices, f(1), f(1) + 1, layers, f(3, 2))
>>> build(*take_apart(learned(net))).rule == learned(net).rule
True
"""

from dataclasses import asdict
from typing import Any

import numpy as np

from perc.errors import InputError, check_whole
from perc.policies.learned import ARRAYS, Network, learned, network_of
from perc.types import Aged, AnyPolicy, Guard, OnlinePolicy

MOST_LAYERS = 16
_SETTINGS = {"head", "inputs", "layers", "guard"}


def take_apart(policy: AnyPolicy) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Settings and arrays for a file, None if the policy is not learned."""
    network = network_of(policy)
    if network is None:
        return None
    assert isinstance(policy, OnlinePolicy) and isinstance(policy.rule, Aged)
    guard = policy.rule.guard
    settings = {
        "head": network.head,
        "inputs": list(network.inputs),
        "layers": len(network.layers),
        "guard": None if guard is None else asdict(guard),
    }
    arrays = {name: getattr(network, name) for name in ARRAYS}
    for i, (w, b) in enumerate(network.layers):
        arrays |= {f"w{i}": w, f"b{i}": b}
    return settings, arrays


def build(settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> OnlinePolicy:
    """The policy of `take_apart`.

    Raises:
        InputError: if something is missing, or arrays do not fit each other.
    """
    if settings.keys() != _SETTINGS:
        raise InputError(f"learned: has settings other than {sorted(_SETTINGS)}.")
    count = check_whole("learned", "layers", settings["layers"], 1, MOST_LAYERS)
    names = [(f"w{i}", f"b{i}") for i in range(count)]
    if arrays.keys() != {*ARRAYS, *(name for pair in names for name in pair)}:
        raise InputError(f"learned: {count} layers, and other arrays than theirs.")
    network = Network(
        head=settings["head"],
        inputs=tuple(settings["inputs"]),
        layers=tuple((arrays[w], arrays[b]) for w, b in names),
        **{name: arrays[name] for name in ARRAYS},
    )
    guard = settings["guard"]
    return learned(network, guard=None if guard is None else Guard(**guard))
