"""How long a deployed model takes: prefill, decode, and any step that mixes both.

A step computes new tokens, of prompts or of answers. It takes as long as the slower of
its arithmetic and its memory traffic, and then the tensor-parallel ranks' exchange:

    step_s = max(FLOPs / (mfu * peak), bytes / (mbu * bandwidth))
             + all-reduce + overhead
    FLOPs  = 2 * active parameters * new tokens + attention
    bytes  = weights that are touched + KV cache that is read

Attention costs each pair of a query and a key that it sees, in each layer and query
head, 2 D FLOPs for the score and 2 D for the sum of values. A prompt of n tokens has
n**2 / 2 pairs, fewer where a window cuts them off. MLA expands its latents to heads in
prefill, (nope + rope + value) * 2 a pair, and computes on the latents themselves in
decode, (2 rank + rope) * 2 a pair, which spares the traffic.

A mixture of experts reads the experts that at least one of the step's tokens visits:
1 - (1 - active / count)**tokens of them, if routing were uniform.

The numbers are a `Roofline`, a pytree of floats for one accelerator of the group: it
can be stacked, mapped over and used inside jit. Functions take NumPy or JAX arrays.

References:
    Williams et al. 2009, "Roofline". Kaplan et al. 2020, table 1, for FLOPs. Pope et
    al. 2022, "Efficiently Scaling Transformer Inference", section 2. DeepSeek-AI 2024,
    "DeepSeek-V2", section 2.1 and appendix C, for MLA. Thakur, Rabenseifner and Gropp
    2005, section 4.5, for all-reduce.
"""

import math
from typing import NamedTuple

import jax
import numpy as np

from perc.cost import PrefillCost
from perc.errors import InputError, check_number
from perc.floats import Array, floats
from perc.hardware import Accelerator, Link, link
from perc.kv_memory import (
    HALF_BYTES,
    check_tp,
    expert_bytes,
    kv_layer_bytes,
    weight_bytes,
)
from perc.models import ModelShape

REDUCES = 2  # all-reduces of a layer: after attention and after the MLP
GROUPS = 2  # of layers by window, at least: so that any two models' numbers stack


class Efficiency(NamedTuple):
    """What a server reaches of its data sheet; `perc.calibration` fits it."""

    # Half the peak in compute-bound work, as `perc.cost` assumes; 0.8 of the bandwidth,
    # as aiconfigurator assumes for every card. No overhead until it was measured.
    mfu: float = 0.5
    mbu: float = 0.8
    overhead_s: float = 0.0  # of a step: launches, scheduling, sampling


class Roofline(NamedTuple):
    """One accelerator of a tensor-parallel group, per step. G groups of layers."""

    token_flops: Array  # of a new token, without attention
    prefill_pair_flops: Array  # f64[G], of a query and a key in all layers of a group
    decode_pair_flops: Array  # f64[G]
    window_tokens: Array  # f64[G], inf: all tokens
    kv_token_bytes: Array  # f64[G]
    weight_bytes: Array  # all weights
    expert_bytes: Array  # routed experts among them
    expert_share: Array  # active / count, 0 without experts
    flops_per_s: Array  # reached
    bytes_per_s: Array  # reached
    overhead_s: Array
    reduce_bytes: Array  # of one all-reduce, of a token
    reduces: Array  # all-reduces of a step
    reduce_bytes_per_s: Array  # reached, one way
    reduce_latency_s: Array
    ranks: Array  # tensor parallelism

    def kv_bytes(self, tokens: Array) -> Array:
        """Bytes [...] of the caches of sequences of `tokens` tokens [...]."""
        xp, n = self._floats(tokens)
        held = xp.minimum(n[..., None], self.window_tokens)
        return (held * self.kv_token_bytes).sum(-1)

    def weights_read(self, new_tokens: Array) -> Array:
        """Bytes [...] of the weights that a step with new tokens [...] touches."""
        xp, n = self._floats(new_tokens)
        # (1 - share)**n, without losing the small shares of large models.
        touched = -xp.expm1(n * xp.log1p(-xp.minimum(self.expert_share, 1 - 1e-12)))
        return self.weight_bytes - self.expert_bytes * (1 - touched)

    def prefill_flops(self, tokens: Array, cached: Array = 0) -> Array:
        """FLOPs [...] to prefill prompts [...] of which `cached` tokens are there."""
        _, n, c = self._floats(tokens, cached)
        pairs = self._pairs(n) - self._pairs(c)
        return self.token_flops * (n - c) + (pairs * self.prefill_pair_flops).sum(-1)

    def decode_flops(self, context: Array) -> Array:
        """FLOPs [...] of one new token after a context [...]."""
        xp, n = self._floats(context)
        seen = xp.minimum(n[..., None], self.window_tokens)
        return self.token_flops + (seen * self.decode_pair_flops).sum(-1)

    def step_s(self, flops: Array, kv_bytes: Array, new_tokens: Array) -> Array:
        """Seconds [...] of a step: the building block of a simulator.

        Args:
            flops: sum over the step's requests of prefill and decode FLOPs.
            kv_bytes: sum over them of `kv_bytes` of what they attend to.
            new_tokens: that the step computes, 0 for no step.
        """
        xp, work, cache, n = self._floats(flops, kv_bytes, new_tokens)
        moved = self.weights_read(n) + cache
        busy = xp.maximum(work / self.flops_per_s, moved / self.bytes_per_s)
        return xp.where(n > 0, busy + self.reduce_s(n) + self.overhead_s, 0.0)

    def reduce_s(self, new_tokens: Array) -> Array:
        """Seconds [...] of a step's all-reduces: the better of ring and doubling.

        ring      2 (T - 1) latency + 2 (T - 1) / T * bytes / bandwidth
        doubling  log2 T * (latency + bytes / bandwidth)
        """
        xp, n, ranks = self._floats(new_tokens, self.ranks)
        wire_s = n * self.reduce_bytes / self.reduce_bytes_per_s
        ring = 2 * (ranks - 1) * (self.reduce_latency_s + wire_s / ranks)
        doubling = xp.ceil(xp.log2(ranks)) * (self.reduce_latency_s + wire_s)
        return self.reduces * xp.minimum(ring, doubling)

    def prefill_s(self, tokens: Array, cached: Array = 0, batch: Array = 1) -> Array:
        """Seconds [...] to prefill `batch` prompts of equal length, in one step.

        With one token left to compute at least: an engine needs its logits.
        """
        xp, n, c, many = self._floats(tokens, cached, batch)
        left = xp.minimum(c, xp.maximum(n - 1, 0))
        flops, cache = self.prefill_flops(n, left), self.kv_bytes(n)
        return self.step_s(many * flops, many * cache, many * (n - left))

    def decode_s(self, batch: Array, context: Array) -> Array:
        """Seconds [...] of a step that decodes `batch` sequences: their ITL."""
        _, many, n = self._floats(batch, context)
        flops, cache = self.decode_flops(n), self.kv_bytes(n)
        return self.step_s(many * flops, many * cache, many)

    def _pairs(self, tokens: Array) -> Array:
        """Pairs [..., G] of query and key in the first `tokens` tokens.

        The integral of min(x, window): n**2 / 2 up to the window, linear beyond it.
        """
        xp, n = self._floats(tokens)
        inside = xp.minimum(n[..., None], self.window_tokens)
        beyond = n[..., None] - inside
        # Without a window nothing lies beyond, and infinity times 0 must be 0.
        width = xp.where(xp.isfinite(self.window_tokens), self.window_tokens, 0.0)
        return inside * inside / 2 + width * beyond

    def _floats(self, *values: Array) -> tuple:
        """In JAX too where any number of the roofline itself is JAX's."""
        return floats(*values, in_jax=any(isinstance(x, jax.Array) for x in self))


def roofline(
    model: ModelShape,
    card: Accelerator,
    *,
    tp: int = 1,
    weights: str | None = None,
    kv: str = "fp16",
    peers: Link | None = None,
    efficiency: Efficiency | None = None,
) -> Roofline:
    """What a model costs on one of `tp` accelerators.

    Args:
        model: its shape.
        card: accelerator.
        tp: tensor parallelism, which the heads must allow.
        weights: format, the published one by default. 8-bit weights compute at the
            8-bit peak where the card has one, all others at the BF16 peak.
        kv: format of the cache.
        peers: link of the all-reduces; the card's own by default.
        efficiency: shares of the peaks that are reached, by default `Efficiency()`.

    Raises:
        InputError: for an unknown format, heads that `tp` would cut, or an efficiency
            outside of 0..1.

    Example:
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> ideal = Efficiency(mfu=1.0, mbu=1.0)
        >>> cost = roofline(model("llama-3-8b"), accelerator("h200"), efficiency=ideal)
        >>> round(1 / float(cost.decode_s(1, 2048)))  # tokens a second
        294
    """
    tp, reached = check_tp(model, tp), efficiency or Efficiency()
    check_number(model.name, "mfu", reached.mfu, above=True, high=1.0)
    check_number(model.name, "mbu", reached.mbu, above=True, high=1.0)
    check_number(model.name, "overhead_s", reached.overhead_s)
    way, experts = peers or link(card.scale_up), model.experts
    windows, layers = _groups(model)
    prefill, decode = _pair_flops(model)
    return Roofline(
        token_flops=2.0 * model.active_parameters / tp,
        prefill_pair_flops=layers * prefill / tp,
        decode_pair_flops=layers * decode / tp,
        window_tokens=windows,
        kv_token_bytes=layers * kv_layer_bytes(model, kv, tp),
        weight_bytes=weight_bytes(model, weights, tp),
        expert_bytes=expert_bytes(model, weights, tp),
        expert_share=experts.active / experts.count if experts else 0.0,
        flops_per_s=reached.mfu * peak_flops(card, weights or model.weights),
        bytes_per_s=reached.mbu * card.bytes_per_s,
        overhead_s=reached.overhead_s,
        reduce_bytes=HALF_BYTES * model.hidden,
        reduces=float(REDUCES * model.layers),
        reduce_bytes_per_s=way.bytes_per_s * way.efficiency,
        reduce_latency_s=way.latency_s,
        ranks=float(tp),
    )


def peak_flops(card: Accelerator, weights: str) -> float:
    """Dense peak at which weights of a format are multiplied.

    >>> from perc.hardware import accelerator
    >>> peak_flops(accelerator("a100"), "fp8") / 1e12  # has no FP8 units
    312.0
    """
    at_8_bits = {"fp8": card.fp8_flops, "int8": card.int8_ops}.get(weights)
    return at_8_bits or card.bf16_flops


def prefill_cost(name: str, cost: Roofline) -> PrefillCost:
    """The compute-bound prefill as a polynomial, for `perc.features` and reports.

    Raises:
        InputError: for a model with windows, whose prefill is no polynomial.
    """
    if not np.isinf(cost.window_tokens).all():
        raise InputError(f"{name}: layers with windows; its prefill is no polynomial.")
    square = float(np.sum(cost.prefill_pair_flops)) / 2
    per_s = float(cost.flops_per_s)
    return PrefillCost(name, float(cost.token_flops) / per_s, square / per_s)


def _groups(model: ModelShape) -> tuple[np.ndarray, np.ndarray]:
    """Windows f64[G] and layers f64[G]; filled up by groups of no layers."""
    found = list(model.window_layers.items())
    found += [(math.inf, 0)] * (GROUPS - len(found))
    windows, layers = np.array(found, np.float64).T
    return windows, layers


def _pair_flops(model: ModelShape) -> tuple[float, float]:
    """FLOPs of a query and a key, all heads of a layer: in prefill and in decode."""
    if model.latent is None:
        flops = 4.0 * model.query_heads * model.head_size
        return flops, flops
    mla, heads = model.latent, model.query_heads
    expanded = 2.0 * heads * (mla.nope + mla.rope + mla.value)
    return expanded, 2.0 * heads * (2 * mla.kv_rank + mla.rope)


def break_even_tokens(
    cost: Roofline,
    way: Link,
    *,
    suffix: int = 1,
    limit: int = 2**17,
) -> int | None:
    """The shortest prefix from which on loading it back beats computing it.

    Compared are the TTFT of a prompt of n + suffix tokens: all of it computed, or its
    first n tokens copied over the link (each rank its own share, none of it hidden) and
    the suffix computed.

    Returns:
        Tokens, or None if some length up to `limit` is still faster to compute.
    """
    if not 1 <= suffix < math.inf or not 1 <= limit <= 2**22:
        raise InputError(
            f"a suffix of {suffix} and a limit of {limit} tokens; give 1 or more, and "
            f"a limit of at most {2**22}."
        )
    n = np.arange(1, limit + 1, dtype=np.float64)
    loaded = way.time_s(cost.kv_bytes(n)) + cost.prefill_s(n + suffix, n)
    slower = np.flatnonzero(loaded > cost.prefill_s(n + suffix))
    if not len(slower):
        return 1
    return None if slower[-1] == limit - 1 else int(slower[-1]) + 2


def usd_per_million_tokens(
    usd_per_hour: Array, tokens_per_s: Array, *, utilisation: float = 1.0
) -> Array:
    """Dollars [...] a million tokens, of a group that is busy a share of the time.

    >>> round(float(usd_per_million_tokens(2.49, 126.0)), 2)
    5.49

    Raises:
        InputError: for a utilisation outside of 0..1.
    """
    check_number("price", "utilisation", utilisation, above=True, high=1.0)
    _, dollars, speed = floats(usd_per_hour, tokens_per_s)
    return dollars / (speed * utilisation * 3600) * 1e6
