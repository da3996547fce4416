"""A learned policy: a network says what an idle block is worth, at every age.

    what is remembered of an access (perc.history)
        -> networks, averaged                    worth of an idle block by its age
        -> the nearest of K worths by age        its class
    the class and the age of a block             what it is worth now

The last line is the rule of `perc` (see there) with other classes and worths: the block
that is worth least leaves first. What a block is worth does not depend on the cache, so
one policy serves every capacity.

A network has one of two heads, over bins of age with edges e_0 = 0 < e_1 < ...:

hazard  P(used before e_(b+1) | unused at e_b). Worth is the best rate at which a stay
        from e_b on pays, as in `perc`.
lease   P(lease = e_b | price): how long to keep the block if a block and second costs
        `price` hits. Worth is the price up to which the block is kept beyond e_b,
        averaged over prices on a log scale.

>>> import numpy as np
>>> f = lambda *shape: np.zeros(shape, np.float32)
>>> bins, prices = np.float32([0, 60]), np.float32([0.001, 0.1])
>>> layers = ((f(1, 1, 2), f(1, 2)),)
>>> net = Network("hazard", ("turn",), bins, prices, f(1), f(1) + 1, layers, f(3, 2))
>>> learned(net).name
'learned'
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perc.errors import InputError
from perc.guard import DEFAULT
from perc.history import NAMES
from perc.reuse import Reuse
from perc.shapes import pad
from perc.types import Aged, Features, Guard, OnlinePolicy

HEADS = ("hazard", "lease")
PRICES = 8  # at which a lease network is asked
LONGEST_S = 1e9  # of a stay: 32 years
FARTHEST = 60.0  # from 0, of a log worth: float32 has an exponential of it
FAR = 4.0  # standard deviations; what lies beyond is taken as that
Layers = tuple[tuple[jax.Array, jax.Array], ...]  # (f32[E, in, out], f32[E, out]) each


@dataclass(frozen=True, eq=False)
class Network:
    """An ensemble of E networks with their classes: all that was learned.

    As a function of features it gives classes, which makes it the `classes` of an
    `Aged` rule. Two are equal if all their numbers are.
    """

    head: str  # of HEADS
    inputs: tuple[str, ...]  # of perc.history.NAMES
    edges_s: np.ndarray  # f32[B], lower edges of the bins of age, from 0
    prices: np.ndarray  # f32[2], lowest and highest, hits per block and second
    mean: np.ndarray  # f32[H], of the inputs in training
    scale: np.ndarray  # f32[H]
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    worths: np.ndarray  # f32[K, B], log worth of each class by bin of age

    @cached_property
    def digest(self) -> bytes:
        """Of all that it holds."""
        found = hashlib.sha256(repr((self.head, self.inputs)).encode())
        for array in _arrays(self):
            found.update(repr(array.shape).encode())
            found.update(array.tobytes())
        return found.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __call__(self, f: Features) -> Sequence[np.ndarray]:
        """The classes of accesses: what an `Aged` rule asks for."""
        return (self.classes(f.history),)

    def classes(self, history: np.ndarray) -> np.ndarray:
        """The class i32[N] of each row f32[N, len(NAMES)] of `perc.history`."""
        rows, row = _distinct(history)
        curves = _parts(self.log_worths(rows))
        near = np.concatenate([_nearest(part, self.worths) for part in curves])
        return near[row].astype(np.int32)

    def classes_of_few(self, history: np.ndarray) -> np.ndarray:
        """Like `classes`, of the rows that a server has at once: in small parts.

        Sums are added in another order than there, so a row that is as near to two
        classes, to six digits, may get the other one.
        """
        few, ask = self._on_cpu, partial(_nearest_class, head=self.head)
        parts = [
            pad(history[i : i + _FEW], 0, _FEW) for i in range(0, len(history), _FEW)
        ]
        near = np.concatenate([np.asarray(ask(few, part)) for part in parts])
        return near[: len(history)]

    @cached_property
    def _on_cpu(self) -> dict[str, Any]:
        """What `_nearest_class` asks, where it need not be copied."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        columns = np.array(self.columns(), np.int32)
        held = {**arrays, "columns": columns, "layers": self.layers}
        return jax.device_put(held, jax.devices("cpu")[0])

    def log_worths(self, history: np.ndarray) -> np.ndarray:
        """Log worth f32[N, B] by bin of age, of rows of `perc.history`."""
        x = self.normalised(history)
        ask = partial(_curves, head=self.head)
        layers, edges, prices = self.layers, self.edges_s, self.prices
        found = [ask(layers, part, edges, prices) for part in _parts(x)]
        worths = np.concatenate([np.asarray(p) for p in found])[: len(x)]
        if not np.isfinite(worths).all():
            raise InputError(
                "learned: the network's numbers are too large, its worths are not "
                "finite. Train it again, at a lower rate."
            )
        return worths

    def normalised(self, history: np.ndarray) -> np.ndarray:
        """What enters the network, f32[N, H]."""
        return normalised(history[:, self.columns()], self.mean, self.scale)

    def columns(self) -> list[int]:
        """Where its inputs stand in `perc.history`."""
        return [NAMES.index(name) for name in self.inputs]


ARRAYS = ("edges_s", "prices", "mean", "scale", "worths")
_PART = 8192  # rows asked at once
_FEW = 8  # by a server


def _arrays(network: Network) -> list[np.ndarray]:
    plain = [getattr(network, name) for name in ARRAYS]
    return [np.asarray(a) for a in (*plain, *jax.tree.leaves(network.layers))]


def learned(network: Network, *, guard: Guard | None = DEFAULT) -> OnlinePolicy:
    """The policy of a trained network.

    Args:
        network: from `perc.train.fit`, or a policy file.
        guard: keeps it from being much worse than LRU; None trusts it blindly.

    Raises:
        InputError: if the network's arrays do not fit each other, or hold no numbers.

    References:
        Expected worth of a stay, from survival: see `perc`. A network for the hazards:
        Gensheimer and Narasimhan 2019, "A scalable discrete-time survival model for
        neural networks" (PeerJ). Leases with a price on room: Che, Tung and Wang 2002,
        "Hierarchical web caching systems" (the characteristic time); Ferragut,
        Rodriguez and Paganini 2016, "Optimizing TTL caches" (SIGMETRICS).
    """
    check(network)
    rule = Aged(network, _worth, guard)
    params = {"edges_s": network.edges_s, "worths": network.worths}
    return OnlinePolicy(params, rule, "learned", uses=("history",))


def network_of(policy: Any) -> Network | None:
    """The network of a learned policy, None if it is another one."""
    rule = getattr(policy, "rule", None)
    found = getattr(rule, "classes", None)
    return found if isinstance(found, Network) else None


def _worth(params: dict, reuse: Reuse) -> jax.Array:
    """What is in the table: f32[E, K, A], the same at all epochs.

    Within a bin of age it falls a little, so that equals leave in the order of LRU;
    beyond the last edge, of which nothing is known, it falls as one over age.
    """
    edges, ages = jnp.asarray(params["edges_s"]), jnp.asarray(reuse.ages)
    column = jnp.searchsorted(edges, ages, side="right") - 1
    beyond = jnp.log(jnp.maximum(ages, edges[-1]) / edges[-1])
    little = 1e-3 * jnp.arange(len(ages)) / len(ages)
    table = jnp.asarray(params["worths"])[:, column] - beyond - little
    shown = jnp.exp(table)[jnp.asarray(reuse.named)]
    return jnp.broadcast_to(shown, (len(reuse.events[0]), *shown.shape))


def normalised(rows: Any, mean: Any, scale: Any) -> Any:
    """Inputs f32[N, H] as the network wants them; arrays of numpy, or all of jax."""
    return ((rows - mean) / scale).clip(-FAR, FAR)


def apply(layers: Layers, x: jax.Array) -> jax.Array:
    """Outputs f32[..., B] of one network for normalised inputs f32[..., H]."""
    *hidden, (w, b) = layers
    for v, c in hidden:
        x = jax.nn.gelu(x @ v + c)
    return x @ w + b


def with_price(x: jax.Array, place: jax.Array) -> jax.Array:
    """Inputs f32[N, H + 1] of a lease network, `place` f32[N] of the price in 0..1."""
    return jnp.concatenate([x, (4 * place - 2)[:, None]], axis=1)


def price_at(prices: jax.Array, place: jax.Array) -> jax.Array:
    """The price at a place from 0, the lowest, to 1, the highest, on a log scale."""
    low, high = jnp.log(prices[0]), jnp.log(prices[1])
    return jnp.exp(low + place * (high - low))


@partial(jax.jit, static_argnames="head")
def _curves(layers, x, edges_s, prices, *, head: str) -> jax.Array:
    if head == "hazard":
        one = lambda net: jax.nn.sigmoid(apply(net, x))  # noqa: E731
        hazard = jax.lax.map(one, layers).mean(axis=0)
        return jnp.log(best_rates(hazard, edges_s))
    places = (jnp.arange(PRICES) + 0.5) / PRICES

    def beyond(net, place):
        keep = jax.nn.softmax(apply(net, with_price(x, jnp.full(len(x), place))))
        return 1 - jnp.cumsum(keep, axis=1)

    def each(net):
        return jax.lax.map(lambda place: beyond(net, place), places).mean(axis=0)

    share = jax.lax.map(each, layers).mean(axis=0)
    return jnp.log(price_at(prices, share))


@partial(jax.jit, static_argnames="head")
def _nearest_class(network: dict, history: jax.Array, *, head: str) -> jax.Array:
    x = normalised(history[:, network["columns"]], network["mean"], network["scale"])
    net = network
    points = _curves(net["layers"], x, net["edges_s"], net["prices"], head=head)
    return _nearest(points, net["worths"])


def best_rates(hazard: jax.Array, edges_s: jax.Array) -> jax.Array:
    """Hits per block and second of the best stay from each edge on, f32[N, B].

    Hazards f32[N, B] are of bins of age; within one, uses come at a constant rate. The
    last bin ends at twice its edge. Hits and seconds of a stay are sums over its bins,
    relative to those that begin it: nothing cancels, however few remain.
    """
    width = jnp.append(edges_s[1:], 2 * edges_s[-1]) - edges_s
    hazard = jnp.clip(hazard, 1e-7, 1 - 1e-6)
    stay = -hazard / jnp.log1p(-hazard) * width  # seconds in a bin, of who enters it
    used = taken = best = jnp.zeros_like(hazard)
    alive = jnp.ones_like(hazard)
    for _ in range(hazard.shape[1]):  # the stay grows by a bin
        used, taken = used + alive * hazard, taken + alive * stay
        best = jnp.maximum(best, used / taken)
        alive = alive * (1 - hazard)
        hazard, stay = (jnp.pad(c[:, 1:], ((0, 0), (0, 1))) for c in (hazard, stay))
    return best


def _parts(x: np.ndarray) -> list[np.ndarray]:
    """Rows in parts of one size, so that one compiled program serves them all.

    And so that no bit of a row's result depends on how many rows come after it.
    """
    room = -len(x) % _PART
    padded = np.concatenate([x, np.zeros((room, x.shape[1]), x.dtype)])
    return np.split(padded, max(len(padded) // _PART, 1))


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows without repeats of the row before, and the place there of each row."""
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return rows[new], np.cumsum(new) - 1


def _nearest(points: Any, centres: Any) -> Any:
    """Which of f32[K, B] is nearest to each of f32[N, B]; the first of equals."""
    cross = points @ centres.T
    return ((centres * centres).sum(axis=1) - 2 * cross).argmin(axis=1)


def check(network: Network) -> None:
    """Checks that arrays fit each other, and hold what a policy can be made of.

    Raises:
        InputError: if they do not.
    """
    unknown = [name for name in network.inputs if name not in NAMES]
    if network.head not in HEADS:
        raise InputError(f"learned: no head {network.head!r}; there are {HEADS}.")
    if unknown or not network.inputs:
        raise InputError(
            f"learned: inputs {unknown or 'none'}; there are {', '.join(NAMES)}."
        )
    if not network.layers:
        raise InputError("learned: the network has no layers. Train it again.")
    for name, array, shape in _wanted(network):
        if np.shape(array) != shape or not np.size(array):
            raise InputError(
                f"learned: {name} has shape {np.shape(array)}, must be {shape}, all "
                "above 0. Train it again."
            )
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise InputError(f"learned: {name} must hold finite 32-bit numbers.")
    if network.edges_s[0] != 0 or not (np.diff(network.edges_s) > 0).all():
        raise InputError("learned: edges_s must rise from 0.")
    if len(network.edges_s) < 2 or network.edges_s[-1] > LONGEST_S:
        raise InputError(f"learned: edges_s must be two or more, to {LONGEST_S:g} s.")
    if not (0 < network.prices[0] < network.prices[1]):
        raise InputError("learned: prices must be two, above 0, the lower one first.")
    if not (network.scale > 0).all():
        raise InputError("learned: scale must be above 0.")
    if (np.abs(network.worths) > FARTHEST).any():
        raise InputError(f"learned: worths must lie within {FARTHEST:g} of 0: logs.")


def _wanted(network: Network) -> list[tuple[str, np.ndarray, tuple[int, ...]]]:
    """Every array by name, and the shape that the others leave it."""

    def size(array: np.ndarray, axis: int) -> int:
        return array.shape[axis] if np.ndim(array) >= abs(axis + (axis >= 0)) else 0

    bins, inputs = size(network.edges_s, 0), len(network.inputs)
    wanted = [
        ("edges_s", network.edges_s, (bins,)),
        ("prices", network.prices, (2,)),
        ("mean", network.mean, (inputs,)),
        ("scale", network.scale, (inputs,)),
        ("worths", network.worths, (size(network.worths, 0), bins)),
    ]
    members, width = size(network.layers[0][0], 0), inputs + (network.head == "lease")
    for i, (w, b) in enumerate(network.layers):
        out = bins if i == len(network.layers) - 1 else size(w, -1)
        wanted += [
            (f"layer {i}", w, (members, width, out)),
            (f"bias {i}", b, (members, out)),
        ]
        width = out
    return wanted
