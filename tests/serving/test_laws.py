"""The laws see what an engine that loses blocks, tokens or time has done."""

import dataclasses

import numpy as np
import pytest

import perc
from perc.policies.registry import registry
from perc.serving import pool
from perc.serving.laws import broken_laws, check_laws
from perc.serving.offload import LowerTier, Offload
from perc.serving.settings import Server
from perc.serving.simulate import SAMPLES, simulate
from tests.serving.common import machine

COST = machine()._replace(bytes_per_s=1e6, flops_per_s=1e8)
BELOW = Offload((LowerTier("cpu", 300, 0.01),))


def busy(policy="lru", blocks=900, *, offload=None, samples=SAMPLES):
    """What a server did, of 900 blocks one that evicts."""
    chat = perc.make("chat", requests=120, seed=2)
    server = Server(blocks, offload=offload)
    return simulate(chat, registry[policy](), server, COST, samples=samples)


@pytest.fixture(scope="module")
def below():
    return busy(offload=BELOW)


@pytest.mark.parametrize("policy", ["lru", "perc"])
@pytest.mark.parametrize("blocks", [900, 10**5])
def test_the_laws_hold(policy, blocks):
    served = busy(policy, blocks)
    check_laws(served)
    assert (served.totals["evictions"] > 0) == (blocks == 900)
    assert served.counted.in_order > 0


@pytest.mark.parametrize(
    "law, change",
    [
        ("submitted", lambda s: {"status": np.zeros_like(s.status)}),
        ("tokens", lambda s: {"made_tokens": s.made_tokens + 1}),
        ("blocks fit", lambda s: {"totals": s.totals | {"size": 901}}),
        ("cached blocks", lambda s: {"totals": s.totals | {"size": 1}}),
        ("cached blocks", lambda s: miscounted(s, "cached")),
        ("pinned blocks", lambda s: miscounted(s, "pinned")),
        ("victims come", lambda s: miscounted(s, "in_order")),
        ("blocks of tiers", lambda s: miscounted(s, "below")),
        ("blocks of tiers", lambda s: miscounted(s, "below_in_order")),
        ("what was found", lambda s: {"known_tokens": s.known_tokens * 0}),
        ("no running", lambda s: {"totals": s.totals | {"pinned": 1}}),
        ("gaps", lambda s: {"itl_counts": s.itl_counts[:-1] * 2}),
        ("time", lambda s: {"admitted_s": s.ended_s + 1}),
    ],
)
def test_a_broken_law_is_found(below, law, change):
    assert broken_laws(below) == []
    wrong = dataclasses.replace(below, **change(below))
    assert any(name.startswith(law) for name in broken_laws(wrong))


def miscounted(served, name):
    found = served.counted
    return {"counted": found._replace(**{name: getattr(found, name) - 1})}


def test_an_engine_that_leaves_ranks_behind_breaks_a_law(monkeypatch):
    """Its totals fit each other, but a block has two ranks among the victims."""
    sound = pool.remove
    kept = lambda words, rank: (words, sound(words, rank)[1])  # noqa: E731
    monkeypatch.setattr(pool, "remove", kept)
    # A number of samples that no other test has, so that no other runs this program.
    broken = broken_laws(busy(blocks=10**5, samples=77))
    assert "cached blocks are those counted" in broken
