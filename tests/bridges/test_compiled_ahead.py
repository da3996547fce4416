"""A server compiles while it starts: no request waits for it."""

from typing import Any

import jax
import pytest

from perc.bridges.live_keys import MOST
from perc.bridges.live_reuse import LEAST
from perc.bridges.orders import order_of
from perc.bridges.uses import Facts
from perc.policies.learned import HEADS, learned
from perc.policies.learned_key import lease_key
from perc.policies.registry import registry
from perc.types import Policy
from tests.bridges.engine import Engine
from tests.bridges.traffic import sessions
from tests.policies.test_learned import network


def _deep(params, f):
    return jax.numpy.sqrt(f.depth + 1.0) + f.recompute_s


POLICIES = {
    **{name: registry[name]() for name in ("perc", "perc_decay", "priority", "lfu")},
    "by block": Policy((), _deep, "deep", ("depth", "recompute_s"), chain=True),
    "learned": learned(network(HEADS[0])),
    "learned, no guard": learned(network(HEADS[0]), guard=None),
    "lease": lease_key(network(HEADS[0]), 0.02),
}


@pytest.mark.parametrize("name", ["lfu", "by block", "lease"])
def test_nothing_is_compiled_for_a_long_request(name, caplog):
    """One prompt of more blocks, and more runs, than are asked for at once."""
    chain = list(range(MOST + 90))
    cache = Engine(order_of(POLICIES[name], 1000, 4), 1000)
    with jax.log_compiles():
        for stop in range(len(chain), 0, -1):
            facts = Facts(input_tokens=4 * stop)
            cache.serve(chain[:stop], facts, now_s=float(len(chain) - stop))
        cache.serve(chain, Facts(input_tokens=4 * len(chain)), now_s=1000.0)
        cache.serve([-1 - i for i in range(700)], Facts(), now_s=1001.0)
    assert [record.getMessage() for record in caplog.records] == []
    assert cache.victims == chain[: -len(cache.victims) - 1 : -1]


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_is_compiled_for_a_request(name, caplog):
    """Not even where hints make four times the classes that a table begins with."""
    jax.clear_caches()
    order: Any = order_of(POLICIES[name], 64, 4)
    cache = Engine(order, 64)
    with jax.log_compiles():
        for number, (chain, now_s) in enumerate(sessions(0, 2000)):
            kind, turn = number % 16, 1 + number // 16 % 6
            facts = Facts(kind=kind, turn=turn, input_tokens=4 * len(chain))
            cache.serve(chain, facts, now_s=now_s)
    assert [record.getMessage() for record in caplog.records] == []
    if name == "perc":
        assert len(order._reuse._named) > 4 * LEAST
