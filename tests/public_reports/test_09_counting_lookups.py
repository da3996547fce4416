"""vllm#25780, vllm#43736: retries and resumptions counted as queries and hits."""

import jax.numpy as jnp

from perc import paging
from perc.features import features
from perc.lookups import Event, count_lookups
from tests.public_reports.traffic import fresh, trace_of

PROMPTS = fresh(10, 4, first=0)


def serve():
    """Each prompt: three look-ups, admitted, preempted, resumed; a pool with room."""
    pool, log = paging.empty_pool(64), []
    for request, keys in enumerate(PROMPTS):

        def look_up(pool, request=request, keys=keys):
            found = int((paging.look_up(pool, jnp.array(keys)) >= 0).sum())
            return Event("look up", request, keys, found)

        log += [look_up(pool) for _ in range(3)]
        log.append(Event("admit", request))
        pool, given = paging.allocate(pool, 4)
        pool, _ = paging.name(pool, given.blocks[:4], jnp.array(keys))
        pool = paging.release(pool, given.blocks[:4])
        log += [Event("preempt", request), look_up(pool), Event("admit", request)]
    return log


def test_forty_queries_no_hit_and_forty_blocks_read_again():
    """vllm#25780 (32 % reported, .2 % true), vllm#43736 (counted per retry)."""
    found = count_lookups(serve())
    assert (found.queries, found.hits, found.block_hit_ratio) == (40, 0, 0.0)
    assert (found.reread, found.recomputed, found.retries) == (40, 0, 20)


def test_frequency_counts_a_block_once_a_request():
    """vllm#43736."""
    found = count_lookups(serve())
    assert set(found.uses.values()) == {1} and len(found.uses) == 40
    counted = features(trace_of(PROMPTS), ["frequency"]).frequency
    assert counted.tolist() == [1] * 40
