"""Placement by link and room against a search of all choices; CachePilot's vector."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.cachepilot import placement as published
from perc.cachepilot.placement import PCIE_GBIT_PER_S, Room
from perc.errors import InputError
from perc.hardware import LINKS, accelerator, link
from perc.placement import Gpu, Topology, all_to_all, place, place_all

MIB = 2.0**20
FAST, SLOW = link("nvlink4"), link("pcie4")


@st.composite
def machines(draw):
    """A topology, and what is free on its GPUs."""
    n = draw(st.integers(1, 4))
    pairs = [(a, b) for a in range(n) for b in range(a)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    turned = [pair[::-1] if draw(st.booleans()) else pair for pair in chosen]
    links = {pair: draw(st.sampled_from(LINKS)) for pair in turned}
    gpu = st.builds(Gpu, st.integers(0, 6), st.integers(0, 2))
    gpus = draw(st.lists(gpu, min_size=n, max_size=n))
    return Topology(n, links, draw(st.sampled_from([FAST, SLOW]))), gpus


def copy_s(topology: Topology, home: int | None, at: int, size: float) -> float:
    """Written anew: latency + bytes over what the link reaches."""
    if home is None or home == at:
        return 0.0
    pair = {frozenset(pair): way for pair, way in topology.links.items()}
    way = pair.get(frozenset((home, at)), topology.otherwise)
    return way.latency_s + size / (way.bytes_per_s * way.efficiency)


@given(machines(), st.integers(1, 6), st.data())
def test_one_session_against_every_choice(machine, blocks, data):
    topology, gpus = machine
    home = data.draw(st.none() | st.integers(0, topology.gpus - 1))
    fits = [at for at, gpu in enumerate(gpus) if gpu.free_blocks >= blocks]
    if not fits:
        with pytest.raises(InputError, match=f"{blocks} blocks fit on none"):
            place(topology, gpus, blocks, block_bytes=MIB, home=home)
        return
    found = place(topology, gpus, blocks, block_bytes=MIB, home=home)
    assert found.gpu in fits
    times = {at: copy_s(topology, home, at, blocks * MIB) for at in fits}
    assert found.seconds == pytest.approx(times[found.gpu]) == min(times.values())
    equal = [at for at in fits if times[at] == min(times.values())]
    ranked = [(-gpus[at].free_blocks, gpus[at].sessions, at) for at in equal]
    assert found.gpu == min(ranked)[2]
    assert (found.way is None) == (found.seconds == 0)
    if home in fits:
        assert found.gpu == home


@given(machines(), st.data())
def test_many_sessions_against_every_assignment(machine, data):
    """Blocks add up; no assignment is cheaper where each has its first choice."""
    topology, gpus = machine
    session = st.tuples(st.integers(1, 3), st.integers(0, topology.gpus - 1))
    sessions = data.draw(st.lists(session, max_size=4))
    try:
        found, after = place_all(topology, gpus, sessions, block_bytes=MIB)
    except InputError:
        return
    for at, (before, now) in enumerate(zip(gpus, after, strict=True)):
        here = [n for (n, _), p in zip(sessions, found, strict=True) if p.gpu == at]
        assert now == Gpu(before.free_blocks - sum(here), before.sessions + len(here))
        assert now.free_blocks >= 0
    costs = []
    for assigned in product(range(topology.gpus), repeat=len(sessions)):
        used = [0] * topology.gpus
        for (blocks, _), at in zip(sessions, assigned, strict=True):
            used[at] += blocks
        if all(n <= gpu.free_blocks for n, gpu in zip(used, gpus, strict=True)):
            costs.append(
                sum(
                    copy_s(topology, home, at, blocks * MIB)
                    for (blocks, home), at in zip(sessions, assigned, strict=True)
                )
            )
    total = sum(one.seconds for one in found)
    assert total >= min(costs) - 1e-12
    alone = [
        place(topology, gpus, blocks, block_bytes=MIB, home=home).seconds
        for blocks, home in sessions
    ]
    if [one.seconds for one in found] == alone:
        assert total == pytest.approx(min(costs))


def test_home_then_the_faster_link_then_room():
    """CachePilot's case: GPU 0 is preferred and full, as any other number would be."""
    pair = Topology(3, {(0, 1): FAST})
    where = place(pair, [Gpu(0), Gpu(60), Gpu(70)], 10, block_bytes=MIB, home=0)
    assert (where.gpu, where.way) == (1, "nvlink4")
    assert where.seconds == float(FAST.time_s(10 * MIB))
    home = place(pair, [Gpu(10), Gpu(60), Gpu(70)], 10, block_bytes=MIB, home=0)
    assert home == (0, None, 0.0)
    new = place(pair, [Gpu(0), Gpu(60), Gpu(70)], 10, block_bytes=MIB)
    assert new == (2, None, 0.0)
    other = place(pair, [Gpu(0), Gpu(9), Gpu(70)], 10, block_bytes=MIB, home=0)
    assert other == (2, "pcie4", float(SLOW.time_s(10 * MIB)))


def test_a_machine_by_its_card():
    assert all_to_all(accelerator("a100"), 8).between(3, 5) is link("nvlink3")
    assert all_to_all(accelerator("l4"), 2).between(1, 0) is link("pcie4")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Topology(0, {}), "gpus is 0"),
        (lambda: Topology(2, {(0, 2): FAST}), "a GPU is 2"),
        (lambda: Topology(2, {(1, 1): FAST}), "each pair of two GPUs once"),
        (lambda: Topology(2, {(0, 1): FAST, (1, 0): SLOW}), "each pair of two"),
        (lambda: place(Topology(2, {}), [Gpu(1)], 1, block_bytes=1), "1 GPUs in a"),
        (lambda: place(Topology(1, {}), [Gpu(-1)], 1, block_bytes=1), "is -1"),
        (lambda: place(Topology(1, {}), [Gpu(1)], 0, block_bytes=1), "blocks is 0"),
        (lambda: place(Topology(1, {}), [Gpu(1)], 1, block_bytes=0), "block_bytes"),
        (
            lambda: place(Topology(1, {}), [Gpu(1)], 1, block_bytes=1, home=1),
            "home is 1",
        ),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


# CachePilot's own score


def test_published_choice():
    rooms = [Room(100, 0), Room(100, 60), Room(100, 70)]
    links = {(0, 1): 900.0}
    assert published.place(links, rooms, 10, preferred=0) == 1
    assert published.place(links, rooms, 10) == 2  # what it does with 0 for none
    rooms[0] = Room(100, 10)
    assert published.place(links, rooms, 10, preferred=0) == 0
    with pytest.raises(InputError, match="71 blocks fit on none of 3"):
        published.place(links, rooms, 71)
    with pytest.raises(InputError, match="preferred is 3"):
        published.place(links, rooms, 1, preferred=3)


def test_a_gpu_without_blocks_has_no_share_of_room():
    assert published.place({}, [Room(0, 0)], 0) == 0
    assert published.place({}, [Room(0, 0), Room(4, 1)], 0) == 1
    for rooms, blocks, said in (
        ([Room(4, 4)], -1, "blocks is -1"),
        ([Room(4, 5)], 1, "GPU 0: free_blocks is 5"),
        ([Room(4, 1), Room(-1, 0)], 1, "GPU 1: total_blocks is -1"),
    ):
        with pytest.raises(InputError, match=said):
            published.place({}, rooms, blocks)


@given(
    st.lists(
        st.builds(Room, st.just(8), st.integers(0, 8), st.integers(0, 30)),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 8),
    st.data(),
)
def test_published_score_against_every_choice(rooms, blocks, data):
    preferred = data.draw(st.none() | st.integers(0, len(rooms) - 1))
    links = {(1, 0): 900.0, (0, 2): 300.0}
    ranked = []
    for at, room in enumerate(rooms):
        if room.free_blocks >= blocks:
            way = {(0, 1): 900, (1, 0): 900, (0, 2): 300, (2, 0): 300}
            near = 1000 if preferred is None else way.get((at, preferred), 32)
            score = near + 100 * room.free_blocks / 8 - 0.1 * room.sessions
            score = 1e9 if at == preferred else score
            ranked.append((score, room.free_blocks - blocks, -at))
    assert PCIE_GBIT_PER_S == 32
    if ranked:
        assert published.place(links, rooms, blocks, preferred) == -max(ranked)[2]
