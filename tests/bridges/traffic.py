"""Random traffic of whole blocks, and what the simulator does with it."""

import jax
import numpy as np
from hypothesis import strategies as st

from perc.aged import aged_traffic, worth_of
from perc.bridges.uses import Facts
from perc.features import features
from perc.reuse import age_bin, dense_levels
from perc.shapes import bucket, pad
from perc.step import empty_cache, requests_of, step
from perc.traces.build import Columns, build_trace
from tests.oracles.aged import Cache
from tests.strategies import chains, rows_of

BLOCK_TOKENS = 4
MOST_BLOCKS = 6


@st.composite
def whole_blocks(draw, max_requests=40, max_depth=MOST_BLOCKS, branching=3):
    """Traces in which every block is full, with turns, kinds, priorities and times."""
    rows = [r for r in draw(chains(max_requests, max_depth, branching)) if r] or [[0]]
    n = len(rows)
    gaps = draw(st.lists(st.sampled_from([0, 1, 2, 7, 30]), min_size=n, max_size=n))
    labels = st.lists(st.integers(0, 3), min_size=n, max_size=n)
    return trace_of(rows, gaps, draw(labels), draw(labels), draw(labels))


def random_trace(seed, n=400):
    """Longer traffic: some sessions that come back, and others that do not."""
    rng = np.random.default_rng(seed)
    rows = [
        list(rng.integers(0, 3, rng.integers(1, MOST_BLOCKS + 1))) for _ in range(n)
    ]
    gaps = rng.choice([0, 1, 2, 7, 30], n)
    return trace_of(rows, gaps, *rng.integers(0, 4, (3, n)))


def trace_of(rows, gaps, session, kind, priority):
    lengths = np.array([len(row) for row in rows], np.int64)
    columns = Columns(
        arrival_s=np.cumsum(np.array(gaps, float)),
        input_tokens=lengths * BLOCK_TOKENS,
        output_tokens=np.full(len(rows), 5),
        ids=np.array([edge for row in rows for edge in row], np.int64),
        lengths=lengths,
        session=list(session),
        kind=list(kind),
        priority=np.array(priority, np.int64),
    )
    return build_trace(
        columns, block_tokens=BLOCK_TOKENS, source="whole blocks", chained=False
    )


def sessions(seed, requests):
    """Chains of sessions that grow and of prompts that come once, and their times."""
    rng = np.random.default_rng(seed)
    names, grown, now_s = iter(range(10**9)), {}, 0.0
    for _ in range(requests):
        now_s += rng.exponential(0.05)
        if rng.random() < 0.4:
            yield [next(names) for _ in range(rng.integers(1, 12))], now_s
            continue
        key = int(rng.integers(0, 60))
        chain = grown.get(key, [])
        chain = [] if len(chain) > 14 else chain
        grown[key] = chain + [next(names) for _ in range(rng.integers(1, 4))]
        yield grown[key], now_s


def requests(trace):
    """Chain, facts and time of each request."""
    for r, (a, b) in enumerate(zip(trace.start, trace.stop, strict=True)):
        facts = Facts(
            session=int(trace.session[r]),
            turn=int(trace.turn[r]),
            kind=int(trace.kind[r]),
            priority=int(trace.priority[r]),
            input_tokens=int(trace.input_tokens[r]),
            output_tokens=int(trace.output_tokens[r]),
        )
        yield trace.block[a:b].tolist(), facts, float(trace.arrival_s[r])


def simulated(policy, trace, capacity):
    """Victims in order, and hits of each request, by `perc.step`."""
    rows = jax.tree.map(np.asarray, requests_of(trace, policy.uses))
    padded = jax.tree.map(lambda column: pad(column, 1), rows)
    padded = padded._replace(block=pad(rows.block, -1))
    state = empty_cache(capacity, bucket(trace.n_blocks))
    hits, victims = _scan(policy, state, padded)
    victims = np.asarray(victims).reshape(-1)
    return victims[victims >= 0].tolist(), np.asarray(hits)[: trace.n_requests].tolist()


@jax.jit
def _scan(policy, state, rows):
    def serve(state, row):
        state, outcome = step(policy, state, row)
        return state, (outcome.hit_blocks, outcome.victims)

    return jax.lax.scan(serve, state, rows)[1]


class _Recorded(Cache):
    """Notes each victim, and the prices of all that might have left."""

    def __init__(self, capacity):
        super().__init__(capacity, lambda age: int(age_bin(np.float32(age))))
        self.victims, self.prices = [], []

    def _victim(self, now, prices):
        worth = {
            block: prices[cls][min(self.bin_of(now - time), len(prices[cls]) - 1)]
            for block, (cls, time, *_) in self.resident.items()
        }
        victim = super()._victim(now, prices)
        self.victims.append(victim)
        self.prices.append(worth)
        return victim


def differs_from_aged(policy, trace, capacity, victims):
    """Compares victims with those of the plain oracle, at the replay's own prices.

    Returns None if they are equal, "tie" if the first other one is worth the same to
    six digits (two programs add up floats in two orders), else what is different.
    """
    worth = np.asarray(worth_of(policy, (reuse := aged_traffic(trace, policy).reuse)))
    levels = policy.rule.classes(features(trace, policy.uses))
    classes = rows_of(trace, dense_levels([np.asarray(x) for x in levels])[0][-1])
    cache = _Recorded(capacity)
    for r, row in enumerate(rows_of(trace, trace.block)):
        cache.serve(r, row, classes[r], trace.arrival_s[r], worth[reuse.epoch[r]])
    for ours, theirs, prices in zip(victims, cache.victims, cache.prices, strict=False):
        if ours != theirs:
            near = np.isclose(prices.get(ours, np.nan), prices[theirs], rtol=1e-5)
            return "tie" if near else f"{ours} at {prices.get(ours)}, not {theirs}"
    return None if len(victims) == len(cache.victims) else "numbers differ"
