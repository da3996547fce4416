"""Estimates for traces too long to replay whole: sample blocks, shrink the cache.

Take the blocks whose hash falls into a share `rate` of all, keep every access of them,
and give the cache `rate * capacity` slots. Under an order that is safe for prefixes a
block hits on its own merit, so the sampled blocks hit as they would have. Disjoint
samples, each another share of the hash space, give the error of the estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perc.compare import run
from perc.errors import InputError
from perc.traces.build import factorize, link_accesses
from perc.types import Policy, Trace

SAMPLES = 5
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, its multiples spread over all bits


@dataclass(frozen=True)
class Estimate:
    """A block hit ratio from several disjoint samples."""

    block_hit_ratio: float  # mean over the samples
    standard_error: float  # of that mean


def estimate(
    policy: Policy,
    trace: Trace,
    sizes: Sequence[int],
    *,
    rate: float,
    samples: int = SAMPLES,
    warmup_requests: int = 0,
) -> list[Estimate]:
    """Block hit ratios of a policy at K capacities, from samples of the blocks.

    Args:
        policy: one whose order is safe for prefixes, such as lru, lfu, perc or belady;
            for others a sampled block may hit where its parent is missing.
        trace: the whole traffic.
        sizes: K capacities in blocks of the whole trace.
        rate: share of the blocks in each sample.
        samples: disjoint samples; `samples * rate` must not exceed 1.
        warmup_requests: the first ones fill the cache and are not counted.

    Returns:
        One estimate a capacity.

    Raises:
        InputError: if the samples do not fit, or are too few for an error.

    References:
        Waldspurger et al. 2015, "Efficient MRC construction with SHARDS" (sampling by
        hash; SHARDS-adj: accesses that the sample has too few of are hits of hot
        blocks), and 2017, "Cache modeling and optimization using miniature
        simulations" (for policies other than LRU).
    """
    if samples < 2 or not 0 < rate * samples <= 1:
        raise InputError(
            f"{samples} samples at a rate of {rate}: give 2 or more, and a rate of at "
            f"most 1 / samples = {1 / max(samples, 1):.3g}."
        )
    small = [max(round(size * rate), 1) if size else 0 for size in sizes]
    counted = np.count_nonzero(trace.request >= warmup_requests)
    ratios = np.empty((samples, len(small)))
    for k in range(samples):
        part = sample_blocks(trace, k * rate, (k + 1) * rate)
        hits = run(policy, part, small)[:, warmup_requests:].sum(axis=1)
        seen = np.count_nonzero(part.request >= warmup_requests)
        expected = counted * rate
        ratios[k] = np.clip((hits + expected - seen) / expected, 0, 1)
    error = ratios.std(axis=0, ddof=1) / np.sqrt(samples)
    return [
        Estimate(float(mean), float(sd))
        for mean, sd in zip(ratios.mean(axis=0), error, strict=True)
    ]


def sample_blocks(trace: Trace, low: float, high: float) -> Trace:
    """The accesses of the blocks whose hash lies in [low, high) of its range.

    Requests stay, also those that are left without blocks; depths stay those of the
    whole prompt.
    """
    mixed = (np.arange(trace.n_blocks, dtype=np.uint64) + np.uint64(1)) * GOLDEN
    share = (mixed ^ (mixed >> np.uint64(29))) * GOLDEN / 2.0**64
    keep = ((share >= low) & (share < high))[trace.block]
    part = of_accesses(trace, keep)
    return replace(part, source=f"{trace.source}, blocks {low:.3g} to {high:.3g}")


def of_accesses(trace: Trace, keep: np.ndarray) -> Trace:
    """Some accesses bool[N] alone, as if the others had never come; requests stay."""
    lengths = np.bincount(trace.request[keep], minlength=trace.n_requests)
    stop = np.cumsum(lengths).astype(np.int32)
    block = factorize(trace.block[keep])
    prev, next_ = link_accesses(block)
    return replace(
        trace,
        block=block,
        request=trace.request[keep],
        depth=trace.depth[keep],
        tokens=trace.tokens[keep],
        prev=prev,
        next=next_,
        start=(stop - lengths).astype(np.int32),
        stop=stop,
    )
