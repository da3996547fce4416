"""The live cache by itself: soft holds, blocks without content, bounded memory."""

import numpy as np
import pytest

from perc.bridges.aged_orders import AgedOrder
from perc.bridges.item_scores import ItemScores
from perc.bridges.orders import _raised, order_of
from perc.bridges.uses import Facts, Run
from perc.errors import InputError
from perc.guard import guarded
from perc.policies.registry import registry
from tests.bridges.engine import Engine
from tests.bridges.traffic import sessions

LIVE = ["lru", "perc", "perc_decay", "priority"]
KNOWING = LIVE[1:]  # hints reach those that remember requests


def engine(name, size, **options):
    return Engine(order_of(registry[name](), size, 4, **options), size)


@pytest.mark.parametrize("name", KNOWING)
def test_what_is_held_outlives_what_is_newer(name):
    cache = engine(name, 4)
    cache.serve(["a", "b"], Facts(hold_s=10.0), now_s=0.0)
    cache.serve(["c", "d"], now_s=1.0)
    cache.serve(["e", "f"], now_s=2.0)
    assert cache.victims == ["d", "c"]
    assert cache.cache.counters.holds_broken == 0


@pytest.mark.parametrize("name", KNOWING)
def test_a_hold_ends(name):
    cache = engine(name, 4)
    cache.serve(["a", "b"], Facts(hold_s=10.0), now_s=0.0)
    cache.serve(["c", "d"], Facts(hold_s=100.0), now_s=1.0)
    cache.serve(["e", "f"], now_s=11.0)
    assert cache.victims == ["b", "a"]
    assert cache.cache.counters.holds_broken == 0


@pytest.mark.parametrize("name", KNOWING)
def test_what_was_held_leaves_before_what_it_hangs_on(name):
    """Both were released under one hold, but the root was in use for longer."""
    cache = engine(name, 5)
    one, other = cache.start(["root", "a", "b"], 0.0), cache.start(["root"], 0.0)
    cache.cache.finished(Facts(hold_s=5.0), one, ["root", "a", "b"], 0.0)
    cache.cache.freed(one[:0:-1], cache.names.__getitem__, 0.0)
    cache.stop(other, Facts(), 30.0)
    shown = [cache.names[block] for block in cache.cache.in_order(31.0)]
    assert shown == [None, None, "b", "a", "root"]
    cache.serve(["c", "d", "e", "f"], now_s=31.0)
    assert cache.victims == ["b", "a"]


@pytest.mark.parametrize("name", KNOWING)
def test_under_pressure_the_earliest_deadline_breaks_first(name):
    cache = engine(name, 6)
    cache.serve(["a", "b"], Facts(hold_s=float("inf")), now_s=0.0)
    cache.serve(["c", "d"], Facts(hold_s=5.0), now_s=1.0)
    cache.serve(["e", "f"], Facts(hold_s=50.0), now_s=2.0)
    cache.serve(["g", "h", "i"], now_s=3.0)
    assert cache.victims == ["d", "c", "f"]
    assert cache.cache.counters.holds_broken == 3


@pytest.mark.parametrize("name", KNOWING)
def test_a_later_request_without_a_hold_does_not_end_one(name):
    cache = engine(name, 4)
    cache.serve(["a", "b"], Facts(hold_s=10.0), now_s=0.0)
    cache.serve(["a", "b"], now_s=1.0)
    cache.serve(["c", "d"], now_s=2.0)
    cache.serve(["e", "f"], now_s=3.0)
    assert cache.victims == ["d", "c"]


def test_held_blocks_that_are_hit_count_as_hits():
    cache = engine("perc", 4)
    cache.serve(["a", "b"], Facts(hold_s=10.0))
    cache.serve(["a", "b", "c"])
    assert cache.hits == [0, 2]
    assert cache.cache.counters.hits == 2


@pytest.mark.parametrize("name", LIVE)
def test_blocks_without_content_leave_first_the_last_freed_of_all(name):
    cache = engine(name, 4)
    cache.serve(["a", "b"])
    cache.cache.blank(cache.cache.take(1, 0.0))
    order = list(cache.cache.in_order(0.0))
    assert [cache.names[block] for block in order] == [None, None, "b", "a"]


@pytest.mark.parametrize("name", LIVE)
def test_more_than_is_free_is_refused_and_nothing_is_lost(name):
    cache = engine(name, 4)
    cache.serve(["a", "b"])
    with pytest.raises(ValueError, match="5 blocks wanted, 4 are free"):
        cache.cache.take(5, 0.0)
    assert cache.cache.free == 4
    with pytest.raises(ValueError, match="not free"):
        cache.cache.hit([cache.cache.take(1, 0.0)[0]])


@pytest.mark.parametrize("name", LIVE)
def test_the_order_shown_is_the_order_taken(name):
    rng, cache = np.random.default_rng(0), engine(name, 24)
    shown = []
    for r in range(200):
        chain = tuple(rng.integers(0, 3, rng.integers(1, 6)))
        hold_s = float(rng.choice([0, 0, 0, 5]))
        names = [chain[: i + 1] for i in range(len(chain))]
        cache.serve(names, Facts(hold_s=hold_s), now_s=float(r))
        shown = list(cache.cache.in_order(float(r)))
        assert sorted(shown) == list(range(24))
    assert cache.cache.take(24, 199.0) == shown


@pytest.mark.parametrize("name", KNOWING)
def test_memory_is_bounded(name):
    """Ten times the traffic, no more records."""
    rng, cache = np.random.default_rng(0), engine(name, 64, memory=256)
    sizes = []
    for r in range(20_000):
        doc = int(rng.integers(0, 400))
        cache.serve([(doc, i) for i in range(int(rng.integers(1, 9)))], now_s=r / 7)
        if r % 2_000 == 1_999:
            sizes.append(records(cache.cache))
    assert max(sizes) <= 4 * 1024 + 2_000, sizes


def records(cache):
    """All that grows with traffic, counted."""
    order, victims = cache.order, cache.order.victims
    uses = order._uses
    found = len(uses._gone) + len(uses._queue) + len(victims._heap)
    if hasattr(victims, "_lines"):
        found += len(victims._offers) + len(victims._children) + len(victims._parent)
        found += sum(len(line._groups) for line in victims._lines.values())
        found += len(order._reuse._uses)
    return found


@pytest.mark.parametrize("name", ["belady", "fifo", "s3fifo", "hazard"])
def test_policies_that_no_server_can_serve_say_why(name):
    with pytest.raises(InputError, match=f"policy {name}"):
        order_of(registry[name](), 8, 4)


def test_items_of_other_engines_have_no_history_and_no_guard():
    with pytest.raises(InputError, match="cannot be kept for single items"):
        ItemScores(guarded(registry["perc"]()))


def test_what_is_forgotten_still_counts_as_not_returned():
    """Every use of a block has returned, is waited for, or was given up.

    To a thousandth: a block that a second copy of its prompt replaced may count twice.
    """
    cache = engine("perc", 64, memory=128)
    order = cache.cache.order
    uses = 0
    for chain, now_s in sessions(0, 1500):
        cache.serve(chain, now_s=now_s)
        uses += len(chain)
    assert isinstance(order, AgedOrder)
    reuse = order._reuse
    waiting = sum(use.waiting for use in reuse._uses)
    assert reuse._gave_up.sum() > 1000
    counted = reuse._done.sum() + reuse._gave_up.sum() + waiting
    assert abs(counted - uses) <= uses / 1000


def test_what_is_learned_stays_good_when_memory_is_short():
    """A server that runs long has forgotten most: hits must not sink for that."""
    hits = {}
    for name in ("lru", "perc"):
        cache = engine(name, 128)
        for chain, now_s in sessions(1, 8000):
            cache.serve(chain, now_s=now_s)
        hits[name] = np.array(cache.hits)
    assert hits["perc"][6000:].sum() > 1.2 * hits["lru"][6000:].sum()
    assert hits["perc"][6000:].sum() > 0.85 * hits["perc"][1000:3000].sum()


def test_keys_rise_towards_the_root_block_by_block():
    """Of a run and of what comes after it; equal ones are one stretch."""
    runs = [Run(0, 3, None), Run(3, 5, None)]
    keys = [np.array([1, 3, 2], np.float32), np.array([0, 2.5], np.float32)]
    assert _raised(runs, [7, 8], keys) == [
        (Run(3, 5, None), 8, 2.5),
        (Run(2, 3, None), 7, 2.5),
        (Run(0, 2, None), 7, 3.0),
    ]
