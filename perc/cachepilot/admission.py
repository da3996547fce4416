"""CachePilot's network for admission in reference mode: 7 -> 64 -> 2, and its steps.

    hidden = relu(x W1 + b1)
    p      = sigmoid(first output)                      admits if p > 0.5
    rate   = exp(second output, within -5..5)
    step   : network + lr * advantage * d log P(what was decided) / d network

CachePilot steps the other way, against the gradient: `published_sign=True`. Its
sampling has no seed, so what its command `rl-admission` printed cannot be repeated;
`perc.train` is what learns here.

References:
    Williams 1992, Machine Learning 8, for the gradient; He et al. 2015 for the
    initial weights. aryanputta/cachepilot for sizes, features and constants.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from perc.cachepilot.reference import Estimated
from perc.errors import InputError, check_number, check_whole

FEATURES, HIDDEN, OUTPUTS = 7, 64, 2
LONGEST_PROMPT, LONGEST_ANSWER = 16_384, 4_096  # tokens, what 1 stands for
FULL_RATE_PER_S, FULL_IDLE_S = 10.0, 60.0
LOG_RATE = 5.0
WARM_UP, WARM_UP_UTILISATION = 100, 0.85
PRIORITIES = {"chat": 1, "code": 2}  # high and normal; the rest is low, 3
STEP, LARGEST_ADVANTAGE = 5e-4, 25.0
IMITATION_STEP = 1e-3


class Network(NamedTuple):
    """Weights and biases."""

    w1: jax.Array  # f32[7, 64]
    b1: jax.Array  # f32[64]
    w2: jax.Array  # f32[64, 2]
    b2: jax.Array  # f32[2]


class Seen(NamedTuple):
    """What is known of a request and of the machine when it asks to come in."""

    utilisation: float  # of the blocks, 0..1
    queued: int
    most_queued: int
    prompt_tokens: int
    workload: str
    answer_tokens: int
    evictions_per_s: float
    since_eviction_s: float


def initial_network(seed: int) -> Network:
    """Normals of deviation sqrt(2 / inputs), from NumPy's `RandomState`.

    Raises:
        InputError: for a seed that it does not take.
    """
    check_whole("admission network", "seed", seed, 0, 2**32 - 1)
    draws = np.random.RandomState(seed)
    w1 = draws.randn(FEATURES, HIDDEN) * np.sqrt(2 / FEATURES)
    w2 = draws.randn(HIDDEN, OUTPUTS) * np.sqrt(2 / HIDDEN)
    zeros = jnp.zeros(HIDDEN), jnp.zeros(OUTPUTS)
    return Network(jnp.float32(w1), zeros[0], jnp.float32(w2), zeros[1])


def features(seen: Seen) -> np.ndarray:
    """The inputs f32[7], each 0..1 in what CachePilot plays.

    Example:
        >>> seen = Seen(0.8, 8, 32, 2048, "code", 1024, 0.3, 2.0)
        >>> features(seen).round(4).tolist()[:5]
        [0.800000011920929, 0.25, 0.125, 0.5, 0.25]
    """
    return np.array(
        [
            seen.utilisation,
            seen.queued / max(seen.most_queued, 1),
            seen.prompt_tokens / LONGEST_PROMPT,
            (PRIORITIES.get(seen.workload, 3) - 1) / 2,
            seen.answer_tokens / LONGEST_ANSWER,
            min(seen.evictions_per_s / FULL_RATE_PER_S, 1.0),
            min(seen.since_eviction_s / FULL_IDLE_S, 1.0),
        ],
        np.float32,
    )


def outputs(network: Network, x: ArrayLike) -> jax.Array:
    """f32[..., 2]: the logit of admission and the logarithm of a rate; x f32[..., 7].

    Raises:
        InputError: for features of another shape.
    """
    x = jnp.asarray(x, jnp.float32)
    if x.ndim < 1 or x.shape[-1] != FEATURES:
        raise InputError(f"features of shape {x.shape}; give [..., {FEATURES}].")
    return jax.nn.relu(x @ network.w1 + network.b1) @ network.w2 + network.b2


def chance(network: Network, x: ArrayLike) -> jax.Array:
    """p f32[...] of being admitted."""
    return jax.nn.sigmoid(outputs(network, x)[..., 0])


def rate_per_s(network: Network, x: ArrayLike) -> jax.Array:
    """The rate f32[...] that the second output says."""
    return jnp.exp(jnp.clip(outputs(network, x)[..., 1], -LOG_RATE, LOG_RATE))


def admits(network: Network, x: np.ndarray, decided: int) -> bool:
    """What is decided, after so many decisions: the first go by utilisation."""
    if decided < WARM_UP:
        return bool(x[0] < np.float32(WARM_UP_UTILISATION))
    return bool(chance(network, x) > 0.5)


def policy_step(
    network: Network,
    x: ArrayLike,
    admitted: bool,
    advantage: float,
    *,
    step: float = STEP,
    published_sign: bool = False,
) -> Network:
    """One step of the policy gradient, after one decision.

    Args:
        network: before it.
        x: f32[7].
        admitted: what was decided.
        advantage: reward beyond what was expected; within +-25.
        step: learning rate.
        published_sign: steps against the gradient, as CachePilot does.

    Raises:
        InputError: for a step that is no number above 0, or features of another shape.

    Example:
        >>> net = initial_network(0)
        >>> x = [0.8, 0.25, 0.125, 0.5, 0.25, 0.03, 1 / 30]
        >>> after = policy_step(net, x, True, 1.5, step=1e-2)
        >>> float(chance(net, x)) < float(chance(after, x))
        True
    """
    check_number("policy step", "step", step, above=True)
    worth = float(np.clip(advantage, -LARGEST_ADVANTAGE, LARGEST_ADVANTAGE))

    def log_p(network: Network) -> jax.Array:
        logit = outputs(network, x)[..., 0]
        return jax.nn.log_sigmoid(logit if admitted else -logit).sum()

    moved = step * worth * (-1 if published_sign else 1)
    return _moved(network, jax.grad(log_p)(network), moved)


def imitation_loss(
    network: Network, x: ArrayLike, admitted: ArrayLike, log_rate: ArrayLike
) -> jax.Array:
    """Mean squares of both heads over a batch: x f32[B, 7], the others f32[B]."""
    found = outputs(network, x)
    wrong = jax.nn.sigmoid(found[:, 0]) - jnp.asarray(admitted, jnp.float32)
    off = found[:, 1] - jnp.asarray(log_rate, jnp.float32)
    return jnp.square(wrong).mean() + jnp.square(off).mean()


def imitation_step(
    network: Network,
    x: ArrayLike,
    admitted: ArrayLike,
    log_rate: ArrayLike,
    *,
    step: float = IMITATION_STEP,
) -> Network:
    """One step of gradient descent on `imitation_loss`.

    Raises:
        InputError: for a step that is no number above 0, or features of another shape.
    """
    check_number("imitation step", "step", step, above=True)
    slope = jax.grad(imitation_loss)(network, x, admitted, log_rate)
    return _moved(network, slope, -step)


def reward(run: Estimated) -> float:
    """What CachePilot pays for a run of its engine.

    25 served + 0.01 tokens - 30 dropped - 3 deferrals - 4 cost
    - 5 max(mean utilisation - 0.9, 0)

    Example:
        400 requests of which none is admitted:

        >>> reward(Estimated("perc", "seeded", 400, dropped=400, deferrals=800))
        -14400.0
    """
    used = sum(run.utilisation) / len(run.utilisation) if run.utilisation else 0.0
    paid = 25 * run.served + 0.01 * run.tokens - 30 * run.dropped - 3 * run.deferrals
    return float(paid - 4 * run.cost_s - 5 * max(used - 0.9, 0.0))


def _moved(network: Network, slope: Network, by: float) -> Network:
    return jax.tree.map(lambda weight, g: weight + by * g, network, slope)
