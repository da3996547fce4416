"""From a model and an accelerator to what an engine must be told, and what will not do.

A cost model, not a measurement: see `perc.deployment`.
"""

from dataclasses import dataclass, replace

import numpy as np

from perc.deployment import Deployment, cost_report
from perc.errors import InputError, check_number
from perc.kv_memory import GIB, kv_format, kv_token_bytes

HOST_RATIO = 2.0  # host memory to the accelerators' cache, where nothing is measured
DISK_RATIO = 4.0  # disk to host memory
SMALL_KV = "fp8"


@dataclass(frozen=True)
class Sizing:
    """How a model is laid out for its users."""

    tp: int
    kv: str
    at_once: int  # requests that fit
    cache_gib: float  # of all accelerators together
    token_bytes: float  # of all accelerators together
    break_even_tokens: int | None  # prefix that is faster to load than to compute
    ttft_s: float  # of a whole prompt, alone, nothing cached
    itl_s: float  # with all users decoding, or as many as fit
    notes: tuple[str, ...]

    def blocks(self, block_tokens: int) -> int:
        """Blocks that the accelerators hold."""
        return int(self.cache_gib * GIB / (self.token_bytes * block_tokens))


def size(
    at: Deployment,
    *,
    users: int,
    ttft_s: float | None = None,
    itl_s: float | None = None,
) -> Sizing:
    """The least accelerators that hold a request, and whether all users fit.

    Args:
        at: a deployment of tensor parallelism 1; a larger one is kept.
        users: requests at once.
        ttft_s: target of the time to the first token.
        itl_s: target of the time between tokens.

    Raises:
        InputError: if no number of these accelerators holds a request, or a target is
            not above 0.

    Example:
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> at = Deployment(model("llama-3.1-70b"), accelerator("h100"))
        >>> found = size(at, users=8)
        >>> found.tp, found.kv, found.at_once
        (2, 'fp8', 8)
    """
    for name, target in (("ttft", ttft_s), ("itl", itl_s)):
        if target is not None:
            check_number("perc advise", name, target, above=True)
    report = cost_report(at)
    if not report.requests_at_once:
        if report.least_tp is None:
            raise InputError(
                f"no number of {report.accelerator} holds {report.model} and a request "
                f"of {at.context_tokens:,} tokens; take a larger one, or fewer tokens."
            )
        at = replace(at, tp=report.least_tp)
        report = cost_report(at)
    notes = []
    if report.requests_at_once < users and kv_format(at.kv).bits == 16:
        smaller = replace(at, kv=SMALL_KV)
        fits = cost_report(smaller).requests_at_once
        notes.append(
            f"{report.requests_at_once} of {users} requests of {at.context_tokens:,} "
            f"tokens fit with a 16-bit cache, {fits} with {SMALL_KV}."
        )
        at, report = smaller, cost_report(smaller)
    if report.requests_at_once < users:
        notes.append(
            f"{users - report.requests_at_once} of {users} requests will wait: take "
            "more accelerators, fewer tokens, or let them wait."
        )
    batch = min(users, report.requests_at_once)
    roof = at.roofline()
    decode = float(roof.decode_s(batch, at.context_tokens))
    assert report.prefill_s is not None
    if ttft_s is not None and report.prefill_s > ttft_s:
        notes.append(_first_token(at, ttft_s, report.prefill_s))
    if itl_s is not None and decode > itl_s:
        most = _largest_batch(at, batch, itl_s)
        notes.append(
            f"{batch} requests decode a token in {decode * 1e3:.3g} ms, above the "
            f"{itl_s * 1e3:.3g} ms asked for; {most} at once keep to it."
        )
    token = kv_token_bytes(at.model, at.kv, at.tp) * at.tp
    return Sizing(
        tp=at.tp,
        kv=at.kv,
        at_once=report.requests_at_once,
        cache_gib=report.kv_budget_gib * at.tp,
        token_bytes=token,
        break_even_tokens=report.break_even_tokens,
        ttft_s=report.prefill_s,
        itl_s=decode,
        notes=tuple(notes),
    )


def _first_token(at: Deployment, target: float, alone: float) -> str:
    n = at.context_tokens
    cached = np.arange(n, dtype=np.float64)
    enough = np.flatnonzero(at.roofline().prefill_s(float(n), cached) <= target)
    start = f"A prompt of {n:,} tokens takes {alone:.3g} s alone, above {target:.3g} s"
    if not len(enough):
        return f"{start}; even cached it takes longer: take faster accelerators."
    return f"{start}; it needs {enough[0] / n:.0%} of itself cached."


def _largest_batch(at: Deployment, most: int, target: float) -> int:
    times = np.asarray(
        at.roofline().decode_s(np.arange(1, most + 1), at.context_tokens)
    )
    return int((times <= target).sum())
