"""Each option of the tiers changes something; none of them changes a server without."""

import dataclasses

import numpy as np
import pytest

import perc
from perc.errors import InputError
from perc.hardware import accelerator, link
from perc.model_shapes import model
from perc.policies.registry import registry
from perc.roofline import roofline
from perc.serving.laws import broken_laws, check_laws
from perc.serving.metrics import summary
from perc.serving.offload import LowerTier, Offload, lower_tier, parse_tier
from perc.serving.outputs import without_outputs
from perc.serving.settings import Server
from perc.serving.simulate import simulate, simulate_servers
from perc.traces.build import Columns, build_trace

LLAMA = model("llama-3.1-8b")
COST = roofline(LLAMA, accelerator("l4"))
BLOCKS = 450


def tier(name="cpu", gib=1.5, way="pcie4", **options):
    """A tier of blocks of 16 tokens: 2 MiB each at 16 bits."""
    return lower_tier(name, gib * 2**30, link(way), LLAMA, 16, **options)


def documents(doc, gap_s):
    """Readers of documents of 100 blocks, one every `gap_s` seconds on average."""
    rng, n = np.random.default_rng(0), len(doc)
    columns = Columns(
        arrival_s=rng.exponential(gap_s, n).cumsum(),
        input_tokens=np.full(n, 1600),
        output_tokens=rng.integers(1, 40, n),
        ids=(doc[:, None] * 100 + np.arange(100)).reshape(-1),
        lengths=np.full(n, 100),
    )
    return build_trace(columns, block_tokens=16, source="documents")


@pytest.fixture(scope="module")
def busy():
    """12 documents, 4 of which the GPU holds; the server is idle at times."""
    return documents(np.random.default_rng(1).integers(0, 12, 150), 0.6)


def served(trace, offload=None, policy="lru", **options):
    server = Server(
        BLOCKS, max_running=16, token_budget=2048, offload=offload, **options
    )
    found = simulate(trace, registry[policy](), server, COST)
    check_laws(found)
    return found


def same(one, other) -> bool:
    return all(
        np.array_equal(mine, getattr(other, field.name), equal_nan=mine.dtype == float)
        for field in dataclasses.fields(one)
        if isinstance(mine := getattr(one, field.name), np.ndarray)
    )


BASE = Offload((tier(),))
SLOW = dataclasses.replace(tier(), block_s=0.004)  # as long as to compute it again
TWO = Offload((tier(gib=0.6), tier("disk", 3, "nvme4")))


def test_a_tier_of_nothing_is_none(busy):
    plain = served(busy)
    empty = served(busy, Offload((tier(gib=0),)))
    assert same(plain, empty) and plain.totals == empty.totals
    assert empty.below is None
    one = served(busy, BASE)
    beside = served(busy, Offload((tier("nothing", 0), *BASE.tiers)))
    assert same(one, beside) and one.totals == beside.totals


def test_tiers_that_nobody_reads_change_nothing(busy):
    """The same compiled loop as with loads, and writes that nobody waits for."""
    plain = served(busy)
    unread = served(busy, dataclasses.replace(BASE, load="recompute"))
    assert unread.below is not None and unread.below.stored.sum() > 0
    for name in ("status", "hit_blocks", "cached_tokens", "made_tokens", "preemptions"):
        assert np.array_equal(getattr(plain, name), getattr(unread, name))
    # Spans of equal steps are cut where a block leaves, so sums round otherwise.
    for name in ("admitted_s", "first_token_s", "ended_s"):
        times = getattr(plain, name)
        assert getattr(unread, name) == pytest.approx(times, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    "change",
    [
        {"tiers": (tier(gib=0.6),)},
        {"tiers": (tier(way="ethernet-25g"),)},
        {"tiers": (tier(way="rdma-400g"),)},
        {"tiers": (tier(way="nvlink-c2c"),)},
        {"tiers": (tier(kv="int8", memory_bytes_per_s=3e11),)},
        {"tiers": (tier(kv="int4", memory_bytes_per_s=3e11),)},
        {"tiers": (dataclasses.replace(tier(), latency_s=0.3),)},
        {"tiers": (*BASE.tiers, tier("disk", 3, "nvme4"))},
        {"placement": "exclusive"},
        {"write": "through"},
        {"store": "likely", "tiers": (SLOW,)},
        {"load": "recompute"},
        {"load": "cheapest", "tiers": (SLOW,)},
    ],
    ids=str,
)
def test_every_option_changes_something(busy, change):
    base = BASE
    if len(change) > 1:  # an option that counts where the link is slow
        base = dataclasses.replace(BASE, tiers=change["tiers"])
    other = dataclasses.replace(base, **change)
    assert not same(served(busy, base), served(busy, other))


def test_one_direction_at_a_time_takes_longer(busy):
    half = dataclasses.replace(SLOW, duplex=False)
    both, one = (served(busy, Offload((link,))).below for link in (SLOW, half))
    assert both is not None and one is not None
    assert one.wait_s.sum() > both.wait_s.sum()


def test_prefetch_hides_the_slow_tier(busy):
    slow = served(busy, TWO)
    ahead = served(busy, dataclasses.replace(TWO, prefetch=True))
    assert slow.below is not None and ahead.below is not None
    assert ahead.below.hits[1] < slow.below.hits[1]
    assert not same(slow, ahead)


def lone(**options):
    """A document, another that drives it out, the document again after a pause.

    And more afterwards, so that the loop of the other tests is not compiled again.
    """
    doc = np.concatenate([[0, 1, 0], np.arange(147) % 12])
    trace = documents(doc, 1.0)
    trace = dataclasses.replace(
        trace,
        arrival_s=100.0 * np.arange(150),
        output_tokens=np.ones(150, np.int32),
    )
    offload = Offload((LowerTier("cpu", 100, **options),))
    server = Server(100, max_running=16, offload=offload)
    return simulate(trace, registry["lru"](), server, COST)


def test_a_load_takes_latency_and_bytes():
    found = lone(block_s=0.01, latency_s=0.5)
    assert found.below is not None
    assert found.below.loaded_blocks[:3].tolist() == [0, 0, 100]
    assert found.below.wait_s[:3].tolist() == pytest.approx([0, 0, 1.5])
    assert found.below.stall_s == pytest.approx(found.below.wait_s.sum())  # all alone
    step = float(COST.prefill_s(1600, 1599))
    ttft = found.first_token_s[2] - found.arrived_s[2]
    assert ttft == pytest.approx(1.5 + step)
    assert found.cached_tokens[:3].tolist() == [0, 0, 1599]
    assert found.hit_blocks[:3].tolist() == [0, 0, 0]  # of the GPU


def test_a_faster_tier_serves_sooner(busy):
    fast, slow = (served(busy, Offload((tier(way=w),))) for w in ("pcie5", "pcie3"))

    def ttft(found):
        return np.nanmean(found.first_token_s - found.arrived_s)

    assert ttft(fast) < ttft(slow) < ttft(served(busy))


def test_more_fits_in_fewer_bits():
    wide, narrow = tier(), tier(kv="int4", memory_bytes_per_s=3e11)
    assert narrow.block_bytes == wide.block_bytes * (128 / 2 + 4) / 256
    assert narrow.capacity_blocks == int(wide.capacity_blocks * 256 / 68)
    wire = narrow.block_bytes / (link("pcie4").bytes_per_s * 24.8 / 32)
    converted = (wide.block_bytes + narrow.block_bytes) / 3e11
    assert narrow.block_s == pytest.approx(wire + converted)
    shared = tier(tp=2)  # two accelerators, each with half of a block on its own link
    assert shared.capacity_blocks == wide.capacity_blocks
    assert shared.block_s == pytest.approx(wide.block_s / 2)


def test_many_tiers_in_one_call(busy):
    named = without_outputs(busy)
    order = perc.ranks(busy, np.arange(busy.n_accesses, dtype=np.float32))
    servers = [
        Server(BLOCKS, offload=Offload((tier(gib=gib),), load=load))
        for gib in (0.6, 1.5)
        for load in ("reload", "cheapest")
    ]
    many = simulate_servers(named, order, servers, COST)
    assert len({run.below.stored.sum() for run in many if run.below}) == 2
    with pytest.raises(InputError, match="number of tiers"):
        simulate_servers(named, order, [servers[0], Server(BLOCKS)], COST)


@pytest.mark.parametrize(
    "law, change",
    [
        ("bytes in", {"stored": np.array([1])}),
        ("tiers hold", {"resident": np.array([10**6])}),
        ("no waits", {"stall_s": -1.0}),
        ("loads were", {"hits": np.array([10**6])}),
    ],
)
def test_a_broken_law_is_found(busy, law, change):
    found = served(busy, BASE)
    assert found.below is not None
    wrong = dataclasses.replace(found, below=dataclasses.replace(found.below, **change))
    assert any(name.startswith(law) for name in broken_laws(wrong))


def test_figures_tell_bytes_and_waits(busy):
    found = served(busy, BASE)
    assert found.below is not None
    figures = summary(busy, found, COST)
    mine = BASE.tiers[0]
    assert figures["tier_cpu_hit_blocks"] == found.below.hits[0] > 0
    assert figures["tier_cpu_read_bytes"] == found.below.read[0] * mine.block_bytes
    assert figures["load_wait_s"] == pytest.approx(found.below.wait_s.sum())
    read_s = found.below.read[0] * mine.block_s
    assert found.below.read_s[0] == pytest.approx(read_s)
    without = summary(busy, served(busy), COST)
    assert figures["token_hit_ratio"] > without["token_hit_ratio"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"placement": "middle"}, "no placement 'middle'; there are inclusive"),
        ({"placement": "exclusive", "write": "through"}, "nothing is written through"),
        ({"prefetch": True}, "give two tiers or more"),
        ({"tiers": BASE.tiers * 5}, "5 tiers"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(BASE, **options)


@pytest.mark.parametrize(
    "text", ["cpu", "cpu:64GiB", "cpu:x:pcie5", "cpu:64:pcie5", "a:1GiB:b:c:d", "::"]
)
def test_other_spellings_are_refused(text):
    with pytest.raises(InputError, match="tier"):
        parse_tier(text)


def test_less_than_a_block_is_refused():
    with pytest.raises(InputError, match="cannot hold one block"):
        tier(gib=1e-6)
    with pytest.raises(InputError, match="block_s is nan"):
        LowerTier("cpu", 1, float("nan"))
