"""The lab's vectors (gpu hits, cpu hits, misses, documents that hit), to the digit."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.lab.caches import CACHES, FIFOCache, LRUCache
from perc.lab.scenario import Scenario, cliff, cpu_cliff, play

ALL, BACK = list(range(10)), list(range(9, -1, -1))
COLD = (0, 0, 10, [])


def vectors(order: str, **options):
    """The tuples of each pass, and the cache at the end."""
    passes, cache = play(Scenario(passes=tuple(order.split(",")), **options))
    tuples = [tuple(one.as_dict().values())[1:] for one in passes]
    return tuples, cache


def counts(order: str, **options):
    return [one[:3] for one in vectors(order, **options)[0]]


def hits(order: str, **options):
    return [one[0] + one[1] for one in vectors(order, **options)[0]]


def test_cyclic():
    assert vectors("fwd,fwd")[0] == [COLD, COLD]


def test_baseline():
    found, cache = vectors("fwd,fwd,rev")
    assert found == [COLD, COLD, (4, 0, 6, [9, 8, 7, 6])]
    assert cache.gpu.keys() == [3, 2, 1, 0] and cache.gpu.used == 20_044
    assert vectors("fwd,fwd")[1].gpu.keys() == [6, 7, 8, 9]


def test_offload():
    found, cache = vectors("fwd,fwd,rev", cpu=56_000)
    assert found == [COLD, (0, 10, 0, ALL), (4, 6, 0, BACK)]
    assert cache.gpu.keys() == [3, 2, 1, 0]
    assert cache.cpu.keys() == [6, 7, 8, 9, 5, 4, 3, 2, 1, 0]
    assert cache.cpu.used == 50_110


def test_cliffs():
    at = Scenario(passes=("fwd", "fwd"))
    sizes = ("21520", "30000", "40000", "45000", "50109")
    assert cliff(at) == {**dict.fromkeys(sizes, 0), "50110": 10}
    sizes = ("0", "20000", "30000", "40000", "50109")
    assert cpu_cliff(at) == {**dict.fromkeys(sizes, 10), "50110": 0, "56000": 0}


def test_backwards_first():
    assert vectors("rev,fwd")[0] == [COLD, (4, 0, 6, [0, 1, 2, 3])]


def test_three_documents_fit():
    assert vectors("fwd,rev,fwd", docs=3)[0] == [
        (0, 0, 3, []),
        (3, 0, 0, [2, 1, 0]),
        (3, 0, 0, [0, 1, 2]),
    ]


SIX = {"docs": 6, "tokens": 100, "gpu": 250, "cpu": 450}
FIVE = {"docs": 5, "tokens": 5000, "gpu": 20_000, "cpu": 25_000}


def test_six_documents():
    cold = (0, 0, 6, [])
    found, cache = vectors("fwd,fwd,rev,rev", **SIX)
    assert found == [cold, cold, (2, 2, 2, [5, 4, 3, 2]), cold]
    assert cache.gpu.keys() == [1, 0] and cache.cpu.keys() == [3, 2, 1, 0]
    found, cache = vectors("fwd,rev,fwd,rev,fwd", **SIX)
    back, forth = (2, 2, 2, [5, 4, 3, 2]), (2, 2, 2, [0, 1, 2, 3])
    assert found == [cold, back, forth, back, forth]
    assert cache.gpu.keys() == [4, 5] and cache.cpu.keys() == [2, 3, 4, 5]


def test_five_documents():
    found, cache = vectors("fwd,rev,fwd,rev", **FIVE)
    back, forth = (4, 1, 0, [4, 3, 2, 1, 0]), (4, 1, 0, [0, 1, 2, 3, 4])
    assert found == [(0, 0, 5, []), back, forth, back]
    assert cache.gpu.keys() == [3, 2, 1, 0] and cache.cpu.keys() == [1, 2, 3, 4, 0]


def test_fifo_is_told_from_lru():
    assert counts("fwd,fwd,rev,rev", **SIX, policy="fifo")[3] == (0, 4, 2)
    assert counts("fwd,rev,fwd,rev", **FIVE, policy="fifo")[2] == (1, 4, 0)
    for options in ({}, {"cpu": 56_000}):  # the usual passes do not tell
        fifo = counts("fwd,fwd,rev", **options, policy="fifo")
        assert fifo == counts("fwd,fwd,rev", **options)


def test_what_is_too_large():
    assert counts("fwd,fwd", tokens=30_000) == [(0, 0, 10)] * 2
    found, cache = vectors("fwd,fwd", gpu=4000, cpu=56_000)
    assert found[1][:3] == (0, 10, 0) and cache.gpu.keys() == []
    assert counts("fwd,fwd,rev", gpu=0, docs=2) == [(0, 0, 2)] * 3


def test_the_unit_vector():
    cache = LRUCache(10)
    steps = [
        *[("a", 4, False, "a"), ("b", 4, False, "ab"), ("a", 4, True, "ba")],
        *[("c", 4, False, "ac"), ("big", 11, False, "ac"), ("b", 4, False, "cb")],
        ("d", 2, False, "cbd"),
    ]
    for key, size, hit, keys in steps:
        assert cache.access(key, size) is hit
        assert cache.keys() == list(keys)
    assert cache.used == 10
    fifo = FIFOCache(10)
    for key, size, *_ in steps[:4]:
        fifo.access(key, size)
    assert fifo.keys() != ["a", "c"]


def test_asking_changes_nothing():
    cache = LRUCache(8)
    for key in "ab":
        cache.access(key, 4)
    assert "a" in cache and cache.keys() == ["a", "b"]


@pytest.mark.parametrize(
    "cpu, second, third",
    [
        (0, (0, 0, 10), (4, 0, 6)),
        (20_000, (0, 0, 10), (4, 3, 3)),
        (25_055, (0, 0, 10), (4, 5, 1)),
        (30_065, (0, 0, 10), (4, 5, 1)),
        (30_066, (0, 10, 0), (4, 6, 0)),
        (56_000, (0, 10, 0), (4, 6, 0)),
    ],
)
def test_exclusive(cpu, second, third):
    found = counts("fwd,fwd,rev", cpu=cpu, exclusive=True)
    assert found == [(0, 0, 10), second, third]


def test_exclusive_holds_what_the_gpu_does_not():
    cache = vectors("fwd,fwd,rev", cpu=30_066, exclusive=True)[1]
    assert not set(cache.gpu.keys()) & set(cache.cpu.keys())
    assert len(cache.gpu.keys()) + len(cache.cpu.keys()) == 10
    # What is too large for the GPU is served from the host.
    assert counts("fwd,fwd", gpu=4000, cpu=56_000, exclusive=True)[1] == (0, 10, 0)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("policy", CACHES)
def test_no_host_is_one_tier(policy, exclusive):
    order = "fwd,rev,rev,fwd,fwd"
    alone = CACHES[policy](21_520)
    if "belady" not in policy:
        for one in order.split(","):
            for doc in ALL if one == "fwd" else BACK:
                alone.access(doc, 5011)
        cache = vectors(order, policy=policy, exclusive=exclusive)[1]
        assert cache.gpu.keys() == alone.keys()
    one = counts(order, policy=policy, exclusive=exclusive)
    assert all(cpu == 0 for _, cpu, _ in one)


@pytest.mark.parametrize(
    "policy, six, usual",
    [
        ("lru", [0] * 6, [0, 0, 4]),
        ("fifo", [0] * 6, [0, 0, 4]),
        ("mru", [0, 4, 4, 4, 3, 3], [0, 4, 4]),
        ("belady", [0, 4, 4, 4, 3, 3], [0, 4, 4]),
        ("belady-bypass", [0, 4, 4, 4, 4, 4], None),
    ],
)
def test_policies(policy, six, usual):
    assert hits(",".join(["fwd"] * 6), policy=policy) == six
    if usual:
        assert hits("fwd,fwd,rev", policy=policy) == usual


def best(sequence, slots, bypass):
    """The most hits of any decisions, by trying all of them."""
    states = {frozenset(): 0}
    for key in sequence:
        after: dict = {}
        for held, hit in states.items():
            choices = [held] if bypass else []
            if key in held or len(held) < slots:
                choices = [held | {key}]
            else:
                choices += [held - {gone} | {key} for gone in held]
            for choice in choices:
                after[choice] = max(after.get(choice, 0), hit + (key in held))
        states = after
    return max(states.values())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["fwd", "rev"]), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_belady_is_the_optimum(passes, docs, slots):
    order = [
        d for p in passes for d in (range(docs) if p == "fwd" else range(docs)[::-1])
    ]
    options = {"docs": docs, "tokens": 7, "gpu": 7 * slots}
    for policy, bypass in (("belady", False), ("belady-bypass", True)):
        found = sum(hits(",".join(passes), policy=policy, **options))
        assert found == best(order, slots, bypass)


def test_the_order_of_passes_counts():
    orders = permutations(["fwd", "fwd", "rev"])
    assert len({tuple(hits(",".join(order))) for order in orders}) > 1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gpu": -1}, "gpu is -1"),
        ({"docs": 0}, "docs is 0"),
        ({"tokens": 0}, "tokens is 0"),
        ({"passes": ("fwd", "up")}, "no pass 'up'; there are fwd"),
        ({"policy": "arc"}, "no policy 'arc'; there are lru"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        Scenario(**options)


def test_a_cliff_needs_a_second_pass():
    with pytest.raises(InputError, match="second pass"):
        cliff(Scenario(passes=("fwd",)))
