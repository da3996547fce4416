"""Trains a policy on a trace: one interface for every method.

>>> import perc
>>> from perc.train.fit import fit
>>> trace = perc.make("chat", requests=300, seed=1)
>>> fit(trace, "imitation", steps=20, members=1, classes=4).name
'learned'
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.cluster.vq import kmeans2

from perc.errors import InputError
from perc.guard import DEFAULT
from perc.history import NAMES
from perc.policies.learned import Network, learned
from perc.train.checkpoint import Checkpoint
from perc.train.examples import Examples, edges_of, examples, prices_of, split
from perc.train.leases import long_enough
from perc.train.methods import METHODS, Method
from perc.train.network import scales
from perc.train.settings import Settings
from perc.types import Guard, OnlinePolicy, Trace

CHUNK = 50  # steps between two looks at the held-out score
Progress = Callable[[int, int, str], None]  # done, total, what is being done


class _State(NamedTuple):
    """All that training changes; members first."""

    nets: Any
    optimiser: Any
    score: jax.Array  # f32[E], held-out, the higher the better


class _Task(NamedTuple):
    """All that training reads."""

    data: Any
    judge: Any  # held-out rows
    prices: jax.Array


def fit(
    trace: Trace,
    method: str = "imitation",
    *,
    settings: Settings | None = None,
    guard: Guard | None = DEFAULT,
    checkpoint: str | Path | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> OnlinePolicy:
    """Learns a policy from a trace.

    The same seed gives the same policy, bit by bit, with the same versions of perc and
    jax on as many cores: XLA adds up in another order on other machines.

    Args:
        trace: the training traffic; what is not in it is not seen.
        method: of `METHODS`.
        settings: how to train.
        guard: of the policy, see `perc.guard`; None leaves it unguarded.
        checkpoint: a file; training goes on from it if it exists, and writes it as it
            goes. It must be of the same trace, method and settings.
        progress: called after each chunk of steps with the held-out score.
        changes: fields of `Settings` to change.

    Raises:
        InputError: for an unknown method, settings out of range, traffic that cannot
            teach, or a checkpoint of other training.
    """
    if method not in METHODS:
        raise InputError(f"no method {method!r}; there are {', '.join(METHODS)}.")
    how = METHODS[method]
    chosen = settled(replace(settings or Settings(), **changes), how)
    found, judges = split(examples(trace), chosen.held_out, chosen.seed)
    edges = edges_of(found)
    prices = prices_of(edges)
    mean, scale = scales(found)
    blank = Network(how.head, NAMES, edges, prices, mean, scale, (), _none(edges))
    data, judge = (_data(how, blank, part, chosen) for part in (found, judges))
    task = _Task(data, judge, jnp.asarray(prices))
    saved = Checkpoint.open(checkpoint, trace, method, chosen)
    # Seeds are arguments, not part of the programs.
    first, then = jax.random.split(jax.random.key(np.uint32(chosen.seed)))
    shape = replace(chosen, seed=0)
    start = partial(_start, first, task, how, shape, len(edges))
    state, done = _resumed(saved, start, chosen.steps) or (start(), 0)
    total = chosen.steps
    while done < total:
        now = min(CHUNK, total - done)
        state = _advance(state, task, then, done, how, shape, now, total)
        done += now
        if saved:
            saved.write(state, done)
        if progress and done < total:
            progress(done, total, _scored(state))
    if progress:
        progress(done, total, _scored(state))
    layers = jax.tree.map(np.asarray, _kept(state.nets, task, jnp.asarray(edges), how))
    return learned(_with_classes(blank, layers, found, chosen), guard=guard)


def _resumed(
    saved: Checkpoint | None, start: Callable[[], _State], steps: int
) -> tuple[_State, int] | None:
    """What a checkpoint holds, if there is one."""
    if saved is None:
        return None
    like = jax.eval_shape(start)
    saved.check_room(like)
    return saved.resume(like, steps)


def settled(settings: Settings, how: Method) -> Settings:
    """What is left open, as the method likes it."""
    return replace(
        settings,
        steps=settings.steps or how.steps,
        members=settings.members or how.members,
        batch=settings.batch or how.batch,
        rate=settings.rate or how.rate,
    )


def _scored(state: _State) -> str:
    return f"held-out score {float(state.score.mean()):.4f}"


def _none(edges: np.ndarray) -> np.ndarray:
    return np.zeros((1, len(edges)), np.float32)


def _data(how: Method, blank: Network, found: Examples, chosen: Settings) -> Any:
    """Examples as the method wants them, without those that it cannot use."""
    if how.head == "lease":
        enough = long_enough(found, blank.edges_s)
        found = Examples(*(column[enough] for column in found))
    weight = found.blocks.astype(np.float64) ** chosen.weight_power
    x = blank.normalised(found.history)
    return how.data(x, found, blank.edges_s, weight / weight.mean())


@partial(jax.jit, static_argnames=("how", "chosen", "bins"))
def _start(
    key: jax.Array, task: _Task, how: Method, chosen: Settings, bins: int
) -> _State:
    widths = (task.data.x.shape[1], *chosen.hidden, bins)
    keys = jax.random.split(key, chosen.members)
    nets = jax.vmap(lambda key: how.start(key, widths, task.data))(keys)
    optimiser = jax.vmap(_optimiser(chosen, 1).init)(nets)
    return _State(nets, optimiser, jnp.zeros(chosen.members))


def _optimiser(chosen: Settings, total: int) -> optax.GradientTransformation:
    falling = optax.cosine_decay_schedule(chosen.rate, total)
    return optax.adamw(
        falling,
        weight_decay=chosen.decay,
        mask=lambda net: jax.tree.map(lambda leaf: leaf.ndim > 1, net),  # no biases
    )


@partial(jax.jit, static_argnames=("how", "chosen", "n", "total"))
def _advance(
    state: _State,
    task: _Task,
    key: jax.Array,
    done: int,
    how: Method,
    chosen: Settings,
    n: int,
    total: int,
) -> _State:
    """Takes `n` steps."""
    optimiser = _optimiser(chosen, total)
    size = len(task.data.x)

    def member(nets, memory, key):
        def step(carry, t):
            nets, memory = carry
            pick, noise, rest = jax.random.split(jax.random.fold_in(key, t), 3)
            rows = jax.random.randint(pick, (min(chosen.batch, size),), 0, size)
            batch = jax.tree.map(lambda column: column[rows], task.data)
            shaken = how.noise * jax.random.normal(noise, batch.x.shape)
            batch = batch._replace(x=batch.x + shaken)
            uphill = how.ascent(nets, batch, task.prices, rest)
            downhill = jax.tree.map(jnp.negative, uphill)
            change, memory = optimiser.update(downhill, memory, nets)
            return (optax.apply_updates(nets, change), memory), None

        carry, _ = jax.lax.scan(step, (nets, memory), done + jnp.arange(n))
        return carry

    keys = jax.random.split(key, chosen.members)
    nets, memory = jax.lax.map(
        lambda args: member(*args), (state.nets, state.optimiser, keys)
    )
    score = jax.lax.map(lambda net: how.score(net, task.judge, task.prices), nets)
    return _State(nets, memory, score)


@partial(jax.jit, static_argnames="how")
def _kept(nets: Any, task: _Task, edges_s: jax.Array, how: Method) -> Any:
    """The layers of all members' networks."""
    return jax.vmap(lambda n: how.settle(how.actor(n), task.data, edges_s))(nets)


def _with_classes(
    blank: Network, layers: Any, found: Examples, chosen: Settings
) -> Network:
    """Groups the worths by age that the network gives, by k-means.

    Each curve that occurs counts once, however many blocks have it.
    """
    plain = tuple((np.asarray(w), np.asarray(b)) for w, b in layers)
    asked = replace(blank, layers=plain)
    curves = np.unique(asked.log_worths(found.history), axis=0)
    count = min(chosen.classes, len(curves))
    draws = np.random.default_rng([chosen.seed, 1])
    with warnings.catch_warnings(action="ignore"):  # of empty groups: dropped below
        centres, nearest = kmeans2(curves, count, minit="++", rng=draws)
    some = np.unique(nearest)
    worths = centres[some].astype(np.float32)
    order = np.argsort(worths.sum(axis=1), kind="stable")
    return replace(asked, worths=worths[order])
