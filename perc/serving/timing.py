"""How long a step takes, and how many equal steps can be taken at once.

A step of decoding only differs from the next by one token of context a request, so its
time is the larger of two straight lines in the number j of the step:

    step_s(j) = max(flops_s + j flops_rise_s, bytes_s + j bytes_rise_s) + fixed_s

As long as one of them stays the larger, k steps take

    span_s(k) = k (line(0) + fixed_s) + rise k (k - 1) / 2
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from perc.floats import Array
from perc.roofline import Roofline
from perc.serving.slots import Slots, count, more_private

MOST_STEPS = 1 << 30


class Line(NamedTuple):
    """Seconds of step j: start + j * rise."""

    start: jax.Array  # f64[]
    rise: jax.Array  # f64[], 0 or more


class Load(NamedTuple):
    """What a step computes and reads."""

    flops: jax.Array  # f64[]
    kv_bytes: jax.Array  # f64[]
    tokens: jax.Array  # i32[]


def decode_load(slots: Slots, cost: Roofline) -> Load:
    """The decoding requests' part: each computes one token, and attends to it too."""
    context = (slots.done + 1).astype(jnp.float64)
    flops = jnp.where(slots.decoding, cost.decode_flops(context), 0.0).sum()
    read = jnp.where(slots.decoding, cost.kv_bytes(context), 0.0).sum()
    return Load(flops, read, count(slots.decoding))


def prompt_load(cost: Roofline, cached: jax.Array, tokens: jax.Array) -> Load:
    """A chunk of a prompt: tokens cached..cached+tokens-1."""
    end = cached + tokens
    return Load(cost.prefill_flops(end, cached), cost.kv_bytes(end), tokens)


def together(a: Load, b: Load, wanted: Array = True) -> Load:
    """The sum, or `a` alone."""
    return Load(*(x + jnp.where(wanted, y, 0) for x, y in zip(a, b, strict=True)))


def step_s(cost: Roofline, load: Load) -> jax.Array:
    """Seconds f64[] of a step."""
    return cost.step_s(load.flops, load.kv_bytes, load.tokens)


class Ahead(NamedTuple):
    """The next decode steps."""

    line: Line  # of the slower side, fixed_s included
    arithmetic: Line  # of the FLOPs alone
    steps: jax.Array  # i32[], for so many it holds


def decode_ahead(slots: Slots, cost: Roofline, load: Load) -> Ahead:
    """Lines that hold until the other side gets slower, or a context fills a window."""
    context = (slots.done + 1)[:, None]
    grows = slots.decoding[:, None] & (context < cost.window_tokens)  # [S, G]
    rising = grows.sum(0, dtype=jnp.int32)
    fixed = cost.reduce_s(load.tokens) + cost.overhead_s
    moved = cost.weights_read(load.tokens) + load.kv_bytes
    computing = Line(
        load.flops / cost.flops_per_s,
        (rising * cost.decode_pair_flops).sum() / cost.flops_per_s,
    )
    moving = Line(
        moved / cost.bytes_per_s,
        (rising * cost.kv_token_bytes).sum() / cost.bytes_per_s,
    )
    compute_bound = computing.start >= moving.start
    start = jnp.maximum(computing.start, moving.start) + fixed
    rise = jnp.where(compute_bound, computing.rise, moving.rise)
    ahead = jnp.abs(computing.start - moving.start)
    closing = jnp.where(compute_bound, 1, -1) * (moving.rise - computing.rise)
    crossing = jnp.where(
        closing > 0, ahead / jnp.where(closing > 0, closing, 1.0), jnp.inf
    )
    left = jnp.where(grows, cost.window_tokens - context, jnp.inf).min()
    steps = jnp.minimum(jnp.floor(crossing) + 1, jnp.maximum(jnp.ceil(left), 1))
    most = jnp.minimum(steps, MOST_STEPS).astype(jnp.int32)
    return Ahead(Line(start, rise), computing, most)


def span_s(line: Line, steps: jax.Array) -> jax.Array:
    """Seconds f64[] of `steps` steps."""
    k = steps.astype(jnp.float64)
    return k * line.start + line.rise * (k * (k - 1) / 2)


def grown_block_s(
    line: Line, steps: jax.Array, slots: Slots, block_tokens: int
) -> jax.Array:
    """Block seconds f64[] of what decoding requests get within `steps` steps.

    A block that is there from step j on counts span_s(steps) - span_s(j). Of a slot, a
    block comes every `block_tokens` steps. With J and Q the sums of j and of j^2, n
    blocks count

        n span_s(steps) - start J - rise (Q - J) / 2
    """
    more = more_private(slots, steps - 1, block_tokens)
    full = (slots.blocks + slots.private) * block_tokens
    n, j = more.astype(jnp.float64), (full - slots.done + 1).astype(jnp.float64)
    pairs = n * (n - 1) / 2
    squares = pairs * (2 * n - 1) / 3
    sum_j = n * j + block_tokens * pairs
    sum_q = n * j * j + block_tokens * (2 * j * pairs + block_tokens * squares)
    bent = line.rise * (sum_q - sum_j) / 2
    return jnp.sum(n * span_s(line, steps) - line.start * sum_j - bent)


def steps_until(line: Line, wait_s: jax.Array) -> jax.Array:
    """The fewest steps i32[] that take `wait_s` or longer; at least one.

    The root of the quadratic, then the neighbour that floats may have meant.
    """
    finite = jnp.minimum(wait_s, 1e12)
    slope = line.start - line.rise / 2
    curve = jnp.maximum(line.rise, 1e-300)
    bent = (jnp.sqrt(slope * slope + 2 * curve * finite) - slope) / curve
    straight = finite / line.start
    # Where the line hardly rises the root cancels; there the straight one is as good.
    guess = jnp.where(line.rise * straight > 1e-6 * line.start, bent, straight)
    steps = jnp.clip(jnp.ceil(guess), 1, MOST_STEPS).astype(jnp.int32)
    fewer = jnp.maximum(steps - 1, 1)
    steps = jnp.where(span_s(line, fewer) >= finite, fewer, steps)
    return jnp.where(span_s(line, steps) < finite, steps + 1, steps)
