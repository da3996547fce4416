"""A learned policy: its classes, its worths, its file, and that it sees no future."""

import dataclasses
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perc
from perc.aged import aged_traffic, worth_of
from perc.errors import InputError
from perc.features import features
from perc.guard import DEFAULT
from perc.history import NAMES, history
from perc.policies import store
from perc.policies.learned import (
    FARTHEST,
    HEADS,
    Network,
    apply,
    best_rates,
    learned,
    network_of,
)
from perc.policies.learned_key import REFUSED, lease_key
from perc.policies.registry import registry
from perc.reuse import age_bin, dense_levels
from perc.step import replay_steps
from perc.types import Guard, OnlinePolicy, Policy, Rescored
from tests.oracles import cache
from tests.oracles import learned as oracle
from tests.strategies import rows_of, traces
from tests.test_aged import CAPACITIES, equals_the_oracle
from tests.test_history import built

f32: Any = partial(np.asarray, dtype=np.float32)
INPUTS = ("output", "turn", "gap", "uses", "below")
EDGES: np.ndarray = f32([0, 1, 4, 16, 64])
some = traces(max_requests=25).filter(lambda t: t.n_accesses)
every_head = pytest.mark.parametrize("head", HEADS)


def network(head="hazard", *, seed=0, members=2, hidden=(6,), classes=4) -> Network:
    """A network of random weights, whose classes are what it says of chat."""
    draws = np.random.default_rng(seed)
    widths = (len(INPUTS) + (head == "lease"), *hidden, len(EDGES))

    def drawn(*shape):
        return draws.normal(0, 0.8, (members, *shape)).astype(np.float32)

    layers = tuple(
        (drawn(n, m), drawn(m)) for n, m in zip(widths, widths[1:], strict=False)
    )
    blank = Network(
        head=head,
        inputs=INPUTS,
        edges_s=EDGES,
        prices=f32([0.005, 0.5]),
        mean=f32([4, 1, 6, 1, 2]),
        scale=f32([2, 1, 3, 0.5, 1]),
        layers=layers,
        worths=np.zeros((1, len(EDGES)), np.float32),
    )
    rows = draws.uniform(0, 6, (classes, len(NAMES))).astype(np.float32)
    return replace(blank, worths=blank.log_worths(rows))


NETWORKS: dict[str, Any] = {head: network(head) for head in HEADS}


@every_head
@settings(deadline=None, max_examples=20)
@given(some)
def test_classes_are_those_of_plain_python(head, trace):
    net, rows = NETWORKS[head], history(trace)
    found, worths = net.classes(rows), net.log_worths(rows)
    assert found.dtype == np.int32
    for i, row in enumerate(rows.tolist()):
        np.testing.assert_allclose(
            worths[i], oracle.log_worths(net, row), rtol=2e-4, atol=2e-4
        )
        far = oracle.distances(net, row)
        assert far[found[i]] <= min(far) + 1e-3


@pytest.mark.parametrize("hidden", [(), (6, 5)])
@pytest.mark.parametrize("members", [1, 3])
@every_head
def test_any_number_of_layers_and_members(head, members, hidden, small_chat):
    net = network(head, members=members, hidden=hidden, seed=1)
    rows = history(small_chat)[::500]
    wanted = [oracle.log_worths(net, row) for row in rows.tolist()]
    np.testing.assert_allclose(net.log_worths(rows), wanted, rtol=2e-4, atol=2e-4)


def test_one_network_is_matrices_and_gelu():
    w, v = f32([[1, -2]]), f32([[3], [0.5]])
    layers = ((w, f32([0, 1])), (v, f32([7])))
    found = apply(jax.tree.map(jnp.asarray, layers), jnp.float32([[2.0]]))
    gelu = [oracle.gelu(2.0), oracle.gelu(-3.0)]
    assert float(found[0, 0]) == pytest.approx(3 * gelu[0] + 0.5 * gelu[1] + 7)


CHANCES = st.floats(1e-7, 1 - 1e-6) | st.sampled_from([1e-7, 1e-4, 1 - 1e-6])


@settings(deadline=None)
@given(st.lists(CHANCES, min_size=5, max_size=5))
def test_the_best_stay_is_the_best_of_all(hazard):
    found = np.asarray(best_rates(jnp.float32([hazard]), jnp.asarray(EDGES)))[0]
    edges = EDGES.tolist()
    rounded = [min(max(float(np.float32(h)), 1e-7), 1 - 1e-6) for h in hazard]
    wanted = [oracle.best_rate(rounded, edges, b) for b in range(5)]
    # 1 - 1e-6 has two digits in a float32.
    np.testing.assert_allclose(found, wanted, rtol=0.01)


def test_a_certain_use_leaves_finite_worths_behind():
    """Nearly nothing outlives the first bins; what is worth later is still known."""
    certain = jnp.float32([[1, 1, 1, 1, 0.5]])
    found = np.asarray(best_rates(certain, jnp.asarray(EDGES)))[0]
    alone = np.asarray(best_rates(jnp.float32([[0, 0, 0, 0, 0.5]]), jnp.asarray(EDGES)))
    assert np.isfinite(found).all() and (found > 0).all()
    assert found[-1] == pytest.approx(alone[0, -1])


def test_a_long_history_is_asked_in_parts(monkeypatch, small_chat):
    net, rows = NETWORKS["lease"], history(small_chat)
    whole = net.classes(rows)
    monkeypatch.setattr("perc.policies.learned._PART", 64)
    np.testing.assert_array_equal(net.classes(rows), whole)
    assert net.classes(rows[:0]).shape == (0,)


@every_head
@settings(deadline=None, max_examples=40)
@given(trace=some, data=st.data())
def test_no_class_depends_on_the_future(head, trace, data):
    """Cut the trace, and put the requests after the cut in another order."""
    cut = data.draw(st.integers(1, trace.n_requests))
    later = data.draw(st.permutations(range(cut, trace.n_requests)))
    known = int(trace.stop[cut - 1])
    whole = NETWORKS[head].classes(history(trace))[:known]
    for rows in ([*range(cut)], [*range(cut), *later]):
        other = _only(trace, rows)
        np.testing.assert_array_equal(
            NETWORKS[head].classes(history(other))[:known], whole
        )


def _only(trace, rows):
    """The requests `rows` of a trace, at its times in order."""
    return built(
        replace(trace, sessions_inferred=False),
        rows,
        arrival_s=trace.arrival_s[: len(rows)],
        extra=np.zeros(len(rows)),
        output_tokens=trace.output_tokens[rows],
        kinds=[trace.kinds[trace.kind[r]] for r in rows],
    )


def test_no_hit_depends_on_the_future():
    """Guard included; of heads only classes could."""
    trace = perc.make("chat", requests=80)
    part = _only(trace, list(range(70)))
    policy: Any = learned(NETWORKS["hazard"])
    whole = perc.replay_online(trace, policy, [100]).blocks
    found = perc.replay_online(part, policy, [100]).blocks
    assert found.sum() > 0
    np.testing.assert_array_equal(found, whole[:, :70])


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(HEADS), some, st.sampled_from(CAPACITIES))
def test_replay_equals_a_cache_of_single_blocks(head, trace, capacity):
    policy: Any = learned(NETWORKS[head], guard=None)
    values = features(trace, policy.uses)
    classes, _ = dense_levels(list(policy.rule.classes(values)))
    traffic = aged_traffic(trace, policy)
    table = np.asarray(worth_of(policy, traffic.reuse))
    equals_the_oracle(trace, classes[-1], traffic.reuse.epoch, table, capacity)


@every_head
def test_worths_are_those_of_the_class_at_its_age(head, small_chat):
    policy: Any = learned(NETWORKS[head])
    reuse = aged_traffic(small_chat, policy).reuse
    found = np.asarray(policy.rule.worth(policy.params, reuse))
    assert found.shape == (len(reuse.events[0]), len(reuse.named), len(reuse.ages))
    assert len(reuse.named) > 1
    for k, cls in enumerate(reuse.named):
        wanted = [
            oracle.worth_at(NETWORKS[head], cls, age, a / len(reuse.ages))
            for a, age in enumerate(reuse.ages.tolist())
        ]
        np.testing.assert_allclose(found[0, k], wanted, rtol=1e-5)
    assert (found == found[0]).all()  # the same at all times
    assert age_bin(reuse.ages).tolist() == list(range(len(reuse.ages)))


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(HEADS), traces(max_requests=25))
def test_bounds_hold(head, trace):
    sizes = [0, 1, 3, 6, max(trace.n_blocks, 1)]
    bound = registry["belady"]()
    rows = perc.replay(trace, perc.ranks(trace, perc.scores(bound, trace)), sizes)
    for guard in (None, DEFAULT):
        found = perc.replay_online(trace, learned(NETWORKS[head], guard=guard), sizes)
        total = found.blocks.sum(axis=1)
        assert (total <= rows.blocks.sum(axis=1)).all()
        assert total[-1] == np.count_nonzero(trace.prev >= 0)


def test_compare_takes_it_as_an_object(small_chat):
    own = [
        replace(learned(net, guard=None), name=head) for head, net in NETWORKS.items()
    ]
    rows = perc.compare(small_chat, [*own, "lru"], [100, 400], warmup=0.2).rows
    assert {row.policy for row in rows} == {"hazard", "lease", "lru"}
    assert all(
        0 < row.block_hit_ratio < 1 for row in rows if row.capacity_blocks == 400
    )


def test_equal_numbers_make_equal_networks():
    one, same, other = network(), network(), network(seed=1)
    assert one == same and hash(one) == hash(same) and one is not same
    assert one != other and one != "hazard"
    assert learned(one).rule == learned(same).rule != learned(other).rule


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Network)])
def test_every_field_counts(name):
    one = network("lease")
    value = getattr(one, name)
    if name == "head":
        changed = "hazard"
    elif name == "inputs":
        changed = ("turn", *value[1:])
    elif name == "layers":
        changed = (*value[:-1], (value[-1][0], value[-1][1] + 1))
    else:
        changed = value + np.float32(1)
    assert replace(one, **{name: changed}) != one


def test_networks_of_other_policies_there_are_none():
    assert network_of(learned(network())) == network()
    assert network_of(registry["perc"]()) is None
    assert network_of(registry["lru"]()) is None
    assert network_of(lease_key(network(), 0.1)) is None


@every_head
@pytest.mark.parametrize("guard", [None, DEFAULT, Guard(share=0.25, patience=2.0)])
def test_a_file_gives_it_back(tmp_path, small_chat, head, guard):
    policy = learned(NETWORKS[head], guard=guard)
    path = store.save(tmp_path / "mine.npz", policy, about={"seed": 1})
    again = store.load(path)
    assert isinstance(again, OnlinePolicy) and again.rule == policy.rule
    assert network_of(again) == NETWORKS[head]
    assert store.describe(path).kind == "learned"
    assert again.uses == ("history",) == store.describe(path).uses
    one, same = (perc.replay_online(small_chat, p, [100]) for p in (policy, again))
    assert one.blocks.tobytes() == same.blocks.tobytes()


def _with(name, change):
    one: Any = network("lease")
    if name in ("w", "b"):
        last = dict(zip("wb", one.layers[-1], strict=True))
        last[name] = change(last[name])
        return replace(one, layers=(one.layers[0], (last["w"], last["b"])))
    return replace(one, **{name: change(getattr(one, name))})


def _spoilt(value):
    def change(array):
        array = array.copy()
        array.flat[-1] = value
        return array

    return change


HOSTILE = {
    "no head of this name": ("head", lambda _: "softmax", "no head 'softmax'"),
    "an unknown input": ("inputs", lambda i: ("mood", *i[1:]), "'mood'"),
    "no inputs": ("inputs", lambda _: (), "inputs none"),
    "one input less": ("inputs", lambda i: i[1:], "mean has shape"),
    "no layers": ("layers", lambda _: (), "no layers"),
    "a layer too many": ("layers", lambda v: (*v, v[-1]), "layer 2"),
    "no members": ("layers", lambda v: jax.tree.map(lambda a: a[:0], v), "layer 0"),
    "members differ": ("b", lambda b: b[:1], "bias 1 has shape"),
    "no axes": ("layers", lambda v: ((np.float32(1), np.float32(1)),), "layer 0"),
    "a bias that is a scalar": ("b", lambda b: b[0, 0], "bias 1 has shape"),
    "bins are missing": ("w", lambda w: w[..., 1:], "layer 1"),
    "an infinite weight": ("w", _spoilt(np.inf), "layer 1 must hold finite"),
    "nan": ("b", _spoilt(np.nan), "bias 1 must hold finite"),
    "64 bits": ("mean", lambda a: a.astype(float), "mean must hold finite 32-bit"),
    "whole numbers": ("mean", lambda a: a.astype(np.int32), "32-bit"),
    "no scale": ("scale", _spoilt(0.0), "scale must be above 0"),
    "no classes": ("worths", lambda w: w[:0], "worths has shape"),
    "classes without axes": ("worths", lambda w: w[0, 0], "worths has shape"),
    "classes of other bins": ("worths", lambda w: w[:, 1:], "worths has shape"),
    "endless worth": ("worths", _spoilt(FARTHEST + 1), "worths must lie within 60"),
    "edges without axes": ("edges_s", lambda e: e[0], "edges_s has shape"),
    "edges that fall": ("edges_s", lambda e: e[[0, 2, 1, 3, 4]], "rise from 0"),
    "edges from 1": ("edges_s", lambda e: e + np.float32(1), "rise from 0"),
    "edges beyond all time": ("edges_s", _spoilt(1e30), "to 1e\\+09 s"),
    "prices that fall": ("prices", lambda p: p[::-1], "lower one first"),
    "a price of 0": ("prices", lambda p: p * f32([0, 1]), "above 0"),
    "three prices": ("prices", lambda p: f32([1, 2, 3]), "prices has shape"),
}


@pytest.mark.parametrize(("name", "change", "said"), HOSTILE.values(), ids=HOSTILE)
def test_arrays_that_make_no_network(name, change, said):
    broken = _with(name, change)
    with pytest.raises(InputError, match=f"learned: .*{said}"):
        learned(broken)
    with pytest.raises(InputError, match="learned: "):
        lease_key(broken, 0.1)


@pytest.mark.parametrize(
    ("settings_", "arrays"),
    [
        ({"layers": 17}, {}),
        ({"layers": 1}, {}),
        ({"layers": "2"}, {}),
        ({"inputs": "turn"}, {}),
        ({"inputs": None}, {}),
        ({"head": ["hazard"]}, {}),
        ({"guard": {"share": -1.0}}, {}),
        ({"guard": {"shares": 1.0}}, {}),
        ({"guard": 1}, {}),
        ({"more": 1}, {}),
        ({}, {"w9": np.zeros(1, np.float32)}),
        ({}, {"worths": np.float32(0)}),
    ],
)
def test_files_that_make_no_policy(tmp_path, settings_, arrays):
    policy = learned(network())
    kind = store.KINDS["learned"]
    parts = kind.take_apart(policy)
    assert parts is not None
    path = tmp_path / "bad.npz"
    given, held = {**parts[0], **settings_}, {**parts[1], **arrays}
    store._write(path, "learned", given, held, policy.uses, None)
    with pytest.raises(InputError, match="bad.npz: "):
        store.load(path)


def test_a_file_has_no_more_than_sixteen_layers():
    kind = store.KINDS["learned"]
    for hidden, said in ((15, None), (16, "layers is 17, must be .* 1 to 16")):
        net = network(hidden=hidden * (2,))
        parts = kind.take_apart(learned(net))
        assert parts is not None
        if said is None:
            assert network_of(kind.build(*parts)) == net
        else:
            with pytest.raises(InputError, match=said):
                kind.build(*parts)


# The static key.


def _leases(net, price, trace, **options):
    """Lease of every access in seconds; refused ones have -1."""
    key = replace(lease_key(net, price, **options), chain=False)
    score = perc.scores(key, trace)
    time_s = trace.arrival_s[trace.request].astype(np.float32)
    return np.where(score == np.float32(REFUSED), -1, score - time_s)


@pytest.mark.parametrize("price", [1e-4, 0.02, 0.2, 3.0])
@every_head
def test_a_key_is_the_end_of_the_lease(head, price, small_chat):
    net, trace = NETWORKS[head], perc.make("chat", requests=12)
    found, edges = _leases(net, price, trace), net.edges_s.tolist()
    low, high = np.log(net.prices.astype(float))
    place = min(max((np.log(price) - low) / (high - low), 0), 1)
    for i, row in enumerate(history(trace).tolist()):
        if head == "lease":
            keep = oracle.leases(net, row, place)
            wanted = sum(k * e for k, e in zip(keep, edges, strict=True))
            refused, unsure = keep[0] > 0.5, abs(keep[0] - 0.5) < 1e-5
        else:
            worth = np.exp(oracle.log_worths(net, row))
            bins = next((b for b, w in enumerate(worth) if w < price), len(edges))
            wanted, refused = [*edges, 2 * edges[-1]][bins], bins == 0
            unsure = (np.abs(worth / price - 1) < 1e-3).any()
        if not unsure:
            expected = -1 if refused else wanted
            assert found[i] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_half_a_chance_of_no_lease_is_none_refused(small_chat):
    """Two bins that are as likely: the lease is that of the middle."""
    net = network("lease", hidden=())
    ((w, b),) = net.layers
    layers = ((0 * w[..., :2], 0 * b[..., :2]),)
    net = replace(net, edges_s=EDGES[:2], worths=net.worths[:, :2], layers=layers)
    np.testing.assert_allclose(_leases(net, 0.1, small_chat), 0.5, atol=1e-3)


@every_head
def test_dearer_room_admits_less_and_shortens_leases(head, small_chat):
    """A trained network's leases fall as room gets dear: tests/train/test_fit.py."""
    net = NETWORKS[head]
    if head == "lease":  # made to prefer short leases the dearer room is
        net = network(head, hidden=())
        w, b = net.layers[0]
        slope = np.zeros_like(w)
        slope[:, -1, 0], slope[:, -1, -1] = 3, -3
        net = replace(net, layers=((slope, 0 * b),))
    each = [_leases(net, price, small_chat) for price in (1e-3, 0.01, 0.03, 0.3, 10)]
    for cheap, dear in zip(each, each[1:], strict=False):
        assert (dear <= cheap + 1e-3).all()
    assert (each[2] < each[0] - 0.1).any() and (each[3] < each[2] - 0.1).any()
    assert (each[0] > 0).all() and (each[-1] < 0).mean() > 0.9


def test_what_has_no_lease_is_refused():
    """With room for the waiting only, a bypassing cache stores nothing else."""
    trace = perc.make("chat", requests=80)
    net = NETWORKS["hazard"]
    price = float(np.exp(np.median(net.log_worths(history(trace))[:, 0])))
    lease = _leases(net, price, trace)
    assert 0.1 < (lease < 0).mean() < 0.9
    key = lease_key(net, price, bypass=True)
    assert key.bypass and not lease_key(net, price).bypass
    score = perc.scores(key, trace)
    rows = rows_of(trace, trace.block), rows_of(trace, score)
    hits, _ = cache.simulate(*rows, 60, bypass=True, refresh=True)
    order = perc.ranks(trace, score)
    found = perc.replay(trace, order, [60], bypass=True)
    assert found.blocks[0].tolist() == hits


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from(HEADS),
    traces(max_requests=15),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_the_key_is_safe_for_prefixes(head, trace, capacity, bypass):
    """A block never leaves before those below it, whatever the engine."""
    key = lease_key(NETWORKS[head], 0.1, bypass=bypass)
    score = perc.scores(key, trace)
    for row in rows_of(trace, score):
        assert row == sorted(row, reverse=True)
    if not trace.n_accesses:
        return
    fast = perc.replay(trace, perc.ranks(trace, score), [capacity], bypass=bypass)
    slow = replay_steps(key, trace, capacity)
    np.testing.assert_array_equal(slow.blocks, fast.blocks[0])
    hits, _ = cache.simulate(
        rows_of(trace, trace.block),
        rows_of(trace, score),
        capacity,
        bypass=bypass,
        refresh=True,
    )
    assert fast.blocks[0].tolist() == hits


def test_keys_at_other_prices_share_one_program(small_chat):
    from perc.ranks import _score

    programs: Any = _score
    perc.scores(lease_key(network(), 0.1), small_chat)
    before = programs._cache_size()
    perc.scores(lease_key(network(seed=5), 0.2), small_chat)
    assert programs._cache_size() == before


@pytest.mark.parametrize("price", [0.0, -1.0, np.nan, np.inf])
def test_a_price_must_be_above_zero(price):
    with pytest.raises(InputError, match="lease_key: price"):
        lease_key(network(), price)


def test_a_key_is_compared_and_not_stored(small_chat, tmp_path):
    key = lease_key(network(), 0.05)
    row = perc.compare(small_chat, [key], [300]).rows[0]
    assert row.policy == "lease_key" and row.block_hit_ratio > 0
    with pytest.raises(InputError, match="cannot be stored"):
        store.save(tmp_path / "key.npz", key)


# Other rules that name `history`.


def _by_output(f):
    return f.history[..., NAMES.index("output")]


def test_step_and_ranks_agree_on_history(small_chat):
    policy = Policy((), lambda p, f: _by_output(f), "h", uses=("history",), chain=True)
    order = perc.ranks(small_chat, perc.scores(policy, small_chat))
    fast = perc.replay(small_chat, order, [100])
    slow = replay_steps(policy, small_chat, 100)
    np.testing.assert_array_equal(slow.blocks, fast.blocks[0])


def test_rescored_rules_may_read_history(small_chat):
    def score(params, f, now):
        return _by_output(f) + 0 * now.time_s

    policy = OnlinePolicy((), Rescored(score), "h", uses=("history",))
    static = Policy((), lambda p, f: _by_output(f), "h", uses=("history",))
    order = perc.ranks(small_chat, perc.scores(static, small_chat))
    np.testing.assert_array_equal(
        perc.replay_online(small_chat, policy, [100, 400]).blocks,
        perc.replay(small_chat, order, [100, 400]).blocks,
    )
