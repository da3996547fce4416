"""What one deployment of a model costs: everything that `perc cost` prints.

A deployment is a model on `tp` accelerators of one kind, serving requests of one
length. Requests at once are those whose caches fit; the decode step is that of a batch
of them; the price is that of a group which is busy a share of the time.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from perc.errors import InputError, check_number, check_whole
from perc.hardware import Accelerator, Link, link
from perc.kv_memory import (
    BATCHED_TOKENS,
    GIB,
    activation_bytes,
    concurrency,
    kv_budget_bytes,
    kv_request_bytes,
    kv_token_bytes,
    weight_bytes,
)
from perc.models import ModelShape
from perc.roofline import (
    Efficiency,
    Roofline,
    break_even_tokens,
    roofline,
    usd_per_million_tokens,
)

MOST_TOKENS = 2**24
TIMES = (
    "prefill_s",
    "prefill_bound",
    "batch",
    "itl_s",
    "itl_bound",
    "itl_alone_s",
    "tokens_per_s",
    "break_even_tokens",
)
PRICES = (
    "usd_per_hour",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
)


@dataclass(frozen=True)
class Deployment:
    """A model on accelerators, and how it is served."""

    model: ModelShape
    card: Accelerator
    tp: int = 1
    weights: str | None = None  # None: as published
    kv: str = "fp16"
    context_tokens: int = 8192  # of a request, prompt and answer
    block_tokens: int = 16
    batch: int | None = None  # None: as many as fit
    utilisation: float = 0.9  # share of the memory that the server may use
    activations_gib: float | None = None  # None: estimated
    efficiency: Efficiency = Efficiency()
    host: Link | None = None  # to reload from; None: the card's own link
    usd_per_hour: float | None = None  # of one card; None: the catalogue's
    busy: float = 1.0  # share of the hour in which the group serves

    def roofline(self) -> Roofline:
        """The times of its steps."""
        return roofline(
            self.model,
            self.card,
            tp=self.tp,
            weights=self.weights,
            kv=self.kv,
            efficiency=self.efficiency,
        )


@dataclass(frozen=True)
class CostReport:
    """Sizes are of each accelerator unless a field says otherwise."""

    model: str
    accelerator: str
    tp: int
    weights: str
    kv: str
    parameters: int
    active_parameters: int
    memory_gib: float
    weights_gib: float
    activations_gib: float
    kv_budget_gib: float
    kv_token_bytes: float
    kv_token_bytes_together: float  # of all accelerators
    context_tokens: int
    kv_request_gib: float
    kv_request_gib_together: float
    requests_at_once: int  # 0: not one
    least_tp: int | None  # smallest parallelism with a request, None: none has
    prefill_s: float | None  # TTFT of the whole context, alone; None: does not fit
    prefill_bound: str | None  # compute or memory
    batch: int | None
    itl_s: float | None  # of a decode step at this batch
    itl_bound: str | None
    itl_alone_s: float | None
    tokens_per_s: float | None  # decoded, of the group
    host_link: str
    reload_s: float  # of a request's cache
    break_even_tokens: int | None  # prefix that is faster to load than to compute
    usd_per_hour: float | None  # of the group
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None

    def as_dict(self) -> dict:
        """Plain numbers and words, for JSON."""
        return dataclasses.asdict(self)


def cost_report(at: Deployment) -> CostReport:
    """Computes the figures of a deployment.

    Raises:
        InputError: for a number that is not as it must be, or a batch that does not
            fit.

    Example:
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> at = Deployment(model("llama-3.1-70b"), accelerator("h100"))
        >>> cost_report(at).requests_at_once, cost_report(at).least_tp
        (0, 2)
    """
    _check(at)
    card, at_once = at.card, requests_at_once(at)
    batch = at_once if at.batch is None else at.batch
    if at.batch is not None and at.batch > at_once > 0:
        raise InputError(
            f"a batch of {at.batch} requests of {at.context_tokens:,} tokens does not "
            f"fit; at most {at_once} do. Give a smaller --batch or --context."
        )
    request = _request_bytes(at)
    token = kv_token_bytes(at.model, at.kv, at.tp)
    host = at.host or link(card.host)
    # None where the model does not fit, rather than the times of nothing.
    times: dict[str, Any] = dict.fromkeys(TIMES)
    if at_once:
        times = _times(at, at.roofline(), batch, host)
    return CostReport(
        model=at.model.name,
        accelerator=card.name,
        tp=at.tp,
        weights=at.weights or at.model.weights,
        kv=at.kv,
        parameters=at.model.parameters,
        active_parameters=at.model.active_parameters,
        memory_gib=card.memory_gib,
        weights_gib=weight_bytes(at.model, at.weights, at.tp) / GIB,
        activations_gib=_activations(at) / GIB,
        kv_budget_gib=_budget(at) / GIB,
        kv_token_bytes=token,
        kv_token_bytes_together=token * at.tp,
        context_tokens=at.context_tokens,
        kv_request_gib=request / GIB,
        kv_request_gib_together=request * at.tp / GIB,
        requests_at_once=at_once,
        least_tp=least_tp(at),
        host_link=host.name,
        reload_s=float(host.time_s(request)),
        **times,
        **_prices(at, times),
    )


def requests_at_once(at: Deployment) -> int:
    """Requests whose caches fit beside the weights, 0 if there is no room for one."""
    return int(concurrency(_budget(at), _request_bytes(at)))


def least_tp(at: Deployment) -> int | None:
    """The smallest tensor parallelism that holds a request, None if none does."""
    for tp in range(1, at.model.query_heads + 1):
        try:
            if requests_at_once(dataclasses.replace(at, tp=tp)):
                return tp
        except InputError:  # the heads cannot be divided by it
            continue
    return None


def _times(at: Deployment, cost: Roofline, batch: int, host: Link) -> dict[str, Any]:
    n, cache = at.context_tokens, cost.kv_bytes
    itl_s = float(cost.decode_s(batch, n))
    decoding = batch * cost.decode_flops(n), batch * cache(n), batch
    return {
        "prefill_s": float(cost.prefill_s(n)),
        "prefill_bound": _bound(cost, cost.prefill_flops(n), cache(n), n),
        "batch": batch,
        "itl_s": itl_s,
        "itl_bound": _bound(cost, *decoding),
        "itl_alone_s": float(cost.decode_s(1, n)),
        "tokens_per_s": batch / itl_s,
        "break_even_tokens": break_even_tokens(cost, host),
    }


def _prices(at: Deployment, times: dict[str, Any]) -> dict[str, Any]:
    price = at.card.usd_per_hour if at.usd_per_hour is None else at.usd_per_hour
    found: dict[str, Any] = dict.fromkeys(PRICES)
    if price is None:
        return found
    found["usd_per_hour"] = price * at.tp
    if times["batch"] is not None:
        speeds = (at.context_tokens / times["prefill_s"], times["tokens_per_s"])
        for name, speed in zip(PRICES[1:], speeds, strict=True):
            dollars = usd_per_million_tokens(price * at.tp, speed, utilisation=at.busy)
            found[name] = float(dollars)
    return found


def _bound(cost: Roofline, flops, kv_bytes, new_tokens) -> str:
    computing = float(flops) / cost.flops_per_s
    moving = float(cost.weights_read(new_tokens) + kv_bytes) / cost.bytes_per_s
    return "compute" if computing > moving else "memory"


def _budget(at: Deployment) -> float:
    left = kv_budget_bytes(
        at.card.memory_bytes,
        weight_bytes(at.model, at.weights, at.tp),
        utilisation=at.utilisation,
        activations=_activations(at),
    )
    return float(left)


def _activations(at: Deployment) -> float:
    if at.activations_gib is not None:
        return at.activations_gib * GIB
    return activation_bytes(at.model, BATCHED_TOKENS, at.tp)


def _request_bytes(at: Deployment) -> float:
    size = kv_request_bytes(
        at.model, at.context_tokens, at.kv, at.tp, block_tokens=at.block_tokens
    )
    return float(size)


def _check(at: Deployment) -> None:
    check_whole("deployment", "context", at.context_tokens, 1, MOST_TOKENS)
    check_number("deployment", "busy", at.busy, above=True, high=1.0)
    if at.batch is not None:
        check_whole("deployment", "batch", at.batch, 1, 2**20)
    for name in ("activations_gib", "usd_per_hour"):
        if getattr(at, name) is not None:
            check_number("deployment", name, getattr(at, name))
