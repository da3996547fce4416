"""Time: prefill, decode, exchange, reload, price; and the fit to measured points."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perc.calibration import Point, calibrate, read_points
from perc.cost import DEFAULT_COST
from perc.deployment import Deployment, cost_report, least_tp, requests_at_once
from perc.errors import InputError
from perc.hardware import ACCELERATORS, accelerator, link
from perc.kv_memory import (
    concurrency,
    kv_budget_bytes,
    kv_request_bytes,
    kv_token_bytes,
    weight_bytes,
)
from perc.model_shapes import MODELS, model
from perc.models import Experts, ModelShape
from perc.roofline import (
    Efficiency,
    break_even_tokens,
    peak_flops,
    prefill_cost,
    roofline,
    usd_per_million_tokens,
)
from tests.oracles import roofline as oracle

IDEAL = Efficiency(1.0, 1.0, 0.0)
LLAMA, H100 = model("llama-3-8b"), accelerator("h100")
names = st.sampled_from([shape.name for shape in MODELS])
cards = st.sampled_from([card.name for card in ACCELERATORS])
lengths = st.integers(1, 200_000)


def published(cost, parameters, tp=1):
    """At the parameters that the reference rounds: 8.03e9, not 8,030,261,248."""
    return cost._replace(
        token_flops=2 * parameters / tp, weight_bytes=2 * parameters / tp
    )


@pytest.mark.parametrize(
    "tokens, seconds",
    [(512, 0.01676), (2048, 0.06871), (8192, 0.30151), (32768, 1.63277)],
)
def test_prefill_of_the_reference(tokens, seconds):
    """Section 2.12: Llama-3-8B at half of 989.4 TFLOP/s; not 2 ms a token."""
    cost = published(roofline(LLAMA, H100), 8.03e9)
    assert float(cost.prefill_s(tokens)) == pytest.approx(seconds, abs=5.1e-6)
    assert cost.prefill_s(tokens) == pytest.approx(DEFAULT_COST.prefill_s(tokens))


def test_recompute_of_the_reference_counts_parameters():
    """505,900 tokens at 6.74e9 parameters on an A100 at its peak: 21.86 s."""
    cost = roofline(model("llama-2-7b"), accelerator("a100"), efficiency=IDEAL)
    seconds = 505_900 * 2 * 6.74e9 / cost.flops_per_s
    assert seconds == pytest.approx(21.86, abs=0.005)


SCORECARD = [
    ("h200", 504, 1008, 293.97, 296.40, 15_984.0, 31_968.0),
    ("h100-80", 260, 520, 205.16, 206.86, 10_145.2, 20_290.4),
    ("a100-pcie", 260, 520, 118.50, 119.49, 5_860.0, 11_720.0),
    ("a10g", 36, 72, 36.75, 37.05, 839.7, 1_679.4),
    ("l4", 36, 72, 18.37, 18.53, 419.8, 839.7),
]


@pytest.mark.parametrize("name, some, many, slow, fast, half, full", SCORECARD)
def test_scorecard_of_the_reference(name, some, many, slow, fast, half, full):
    """Section 2.12, corrected: weights are read, 2 P is computed, 8 KV heads."""
    card = accelerator(name)
    for kv, sessions, alone, together in (
        ("fp16", some, slow, half),
        ("fp8", many, fast, full),
    ):
        cost = published(roofline(LLAMA, card, kv=kv, efficiency=IDEAL), 8.03e9)
        budget = kv_budget_bytes(card.memory_bytes, 2 * 8.03e9, utilisation=1.0)
        assert concurrency(budget, kv_request_bytes(LLAMA, 2048, kv)) == sessions
        # The reference prints two and one digits, of H100's peak rounded to 989.5.
        assert 1 / cost.decode_s(1, 2048) == pytest.approx(alone, abs=0.0051)
        speed = sessions / cost.decode_s(sessions, 2048)
        assert speed == pytest.approx(together, abs=0.051)


def test_ridges_of_the_reference():
    ridges = {"h100": 295.37, "h200": 206.15, "l4": 403.33}
    for name, ridge in ridges.items():
        assert accelerator(name).ridge == pytest.approx(ridge, rel=1e-3)


def small(windows=(), experts=None):
    return ModelShape("s", 3, 64, 4, 2, 16, 128, 500, windows=windows, experts=experts)


@given(
    st.lists(st.integers(0, 30), max_size=3),
    st.sampled_from([None, Experts(8, 2, 32, layers=2, shared_width=16)]),
    st.integers(1, 60),
    st.integers(0, 59),
)
def test_prefill_flops_are_counted_token_by_token(windows, experts, tokens, cached):
    shape = small(tuple(windows), experts)
    cost = roofline(shape, H100)
    found = float(cost.prefill_flops(tokens, min(cached, tokens)))
    wanted = oracle.prefill_flops(shape, tokens, min(cached, tokens))
    assert found == pytest.approx(wanted, rel=1e-12)


@given(st.lists(st.integers(0, 30), max_size=3), st.integers(0, 60))
def test_cache_that_is_read_is_what_the_cache_holds(windows, tokens):
    shape = small(tuple(windows))
    read = float(roofline(shape, H100).kv_bytes(tokens))
    assert read == oracle.kv_bytes(shape, tokens) == kv_request_bytes(shape, tokens)


@given(names, st.integers(0, 4096))
def test_experts_are_read_as_tokens_touch_them(name, tokens):
    shape = model(name)
    cost = roofline(shape, H100)
    share = 1.0
    if shape.experts:
        experts = shape.experts
        share = oracle.experts_touched(experts.count, experts.active, tokens)
    wanted = cost.weight_bytes - cost.expert_bytes * (1 - share)
    assert float(cost.weights_read(tokens)) == pytest.approx(wanted, rel=1e-9)


def test_one_token_reads_the_active_experts():
    shape = model("mixtral-8x7b")
    read = float(roofline(shape, H100).weights_read(1))
    assert read == pytest.approx(2 * shape.active_parameters, rel=1e-9)
    assert float(roofline(shape, H100).weights_read(1e6)) == weight_bytes(shape)


@settings(deadline=None)
@given(names, cards, st.lists(lengths, min_size=2), st.integers(1, 64))
def test_longer_and_larger_never_takes_less(name, card, tokens, batch):
    cost = roofline(model(name), accelerator(card))
    n = np.sort(tokens)
    assert (np.diff(cost.prefill_s(n)) >= 0).all()
    assert (np.diff(cost.decode_s(batch, n)) >= 0).all()
    assert cost.decode_s(batch + 1, n[0]) >= cost.decode_s(batch, n[0])
    per_sequence = cost.decode_s(batch, n[0]) / batch
    assert cost.decode_s(batch + 1, n[0]) / (batch + 1) <= per_sequence * (1 + 1e-12)
    assert (cost.prefill_s(n, n // 2) <= cost.prefill_s(n)).all()
    assert cost.prefill_s(0) == 0 and cost.decode_s(0, n[0]) == 0


@given(names, st.integers(2, 100_000))
def test_a_prompt_that_is_all_cached_computes_one_token(name, tokens):
    cost = roofline(model(name), H100)
    assert cost.prefill_s(tokens, tokens) == cost.prefill_s(tokens, tokens - 1) > 0


@given(names, cards, lengths)
def test_a_faster_card_is_never_slower(name, card, tokens):
    slow = accelerator(card)
    fast = dataclasses.replace(
        slow, bf16_flops=2 * slow.bf16_flops, bytes_per_s=2 * slow.bytes_per_s
    )
    for weights in ("bf16", "int4"):
        before = roofline(model(name), slow, weights=weights)
        after = roofline(model(name), fast, weights=weights)
        assert after.prefill_s(tokens) == pytest.approx(before.prefill_s(tokens) / 2)
        assert after.decode_s(1, tokens) == pytest.approx(
            before.decode_s(1, tokens) / 2
        )


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_ranks_share_work_and_memory_and_pay_for_talking(tp):
    shape = model("llama-3.1-70b")
    one, many = roofline(shape, H100), roofline(shape, H100, tp=tp)
    for name in ("token_flops", "weight_bytes"):
        assert getattr(many, name) * tp == pytest.approx(getattr(one, name))
    assert (many.prefill_pair_flops * tp == one.prefill_pair_flops).all()
    assert (many.kv_token_bytes * tp == one.kv_token_bytes).all()
    talk = float(many.reduce_s(100))
    assert (talk > 0) == (tp > 1)
    split = float(one.prefill_s(4096)) / tp
    assert many.prefill_s(4096) == pytest.approx(split + float(many.reduce_s(4096)))


def test_all_reduce_takes_the_better_way():
    """Thakur et al. 2005: doubling for short messages, the ring for long ones."""
    cost = roofline(model("llama-3.1-70b"), H100, tp=8)
    latency, wire = cost.reduce_latency_s, 16384 / cost.reduce_bytes_per_s
    short, long = float(cost.reduce_s(1)), float(cost.reduce_s(1e6))
    assert short == pytest.approx(160 * 3 * (latency + wire))
    assert long == pytest.approx(160 * (14 * latency + 2 * 7 / 8 * wire * 1e6))


def test_latents_cost_traffic_once_and_work_on_the_latent():
    """Per pair and head: 640 FLOPs expanded, 2,176 on the latent."""
    shape = model("deepseek-v3")
    cost = roofline(shape, H100, tp=8)
    heads = 61 * 128 / 8
    assert cost.prefill_pair_flops.tolist() == [heads * 2 * (128 + 64 + 128), 0]
    assert cost.decode_pair_flops.tolist() == [heads * 2 * (512 + 64 + 512), 0]
    assert cost.kv_token_bytes.tolist() == [kv_token_bytes(shape), 0]


def test_query_heads_cost_work_and_kv_heads_cost_memory():
    wide = dataclasses.replace(LLAMA, kv_heads=32)
    grouped, full = roofline(LLAMA, H100), roofline(wide, H100)
    assert (grouped.prefill_pair_flops == full.prefill_pair_flops).all()
    assert (4 * grouped.kv_token_bytes == full.kv_token_bytes).all()


def test_eight_bit_weights_compute_at_the_eight_bit_peak_where_there_is_one():
    assert peak_flops(H100, "fp8") == H100.fp8_flops
    assert peak_flops(H100, "int8") == H100.int8_ops
    assert peak_flops(H100, "int4") == peak_flops(H100, "bf16") == H100.bf16_flops
    a100 = accelerator("a100")
    assert peak_flops(a100, "fp8") == a100.bf16_flops
    assert peak_flops(accelerator("gaudi3"), "int8") == 1835e12


@pytest.mark.parametrize("name", ["llama-3.1-70b", "deepseek-v3", "gpt-oss-120b"])
def test_jax_and_numpy_agree(name):
    cost = roofline(model(name), H100, tp=8)
    tokens, cached = np.array([1, 7, 5000, 131_072]), np.array([0, 3, 17, 100_000])
    fast = jax.jit(lambda c, n, m: (c.prefill_s(n, m), c.decode_s(8, n)))
    for found, wanted in zip(
        fast(cost, jnp.asarray(tokens), jnp.asarray(cached)),
        (cost.prefill_s(tokens, cached), cost.decode_s(8, tokens)),
        strict=True,
    ):
        # float32 loses digits where two sums of pairs are subtracted.
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_servers_are_stacked_and_mapped():
    """Hundreds of configurations in one call, as a simulator wants them."""
    many = [
        roofline(shape, card, efficiency=Efficiency(0.3, 0.8, 0.001))
        for card in ACCELERATORS
        for shape in MODELS[::6]  # with windows and without
    ]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *many)
    found = jax.jit(jax.vmap(lambda c: c.decode_s(4, 1000)))(stacked)
    wanted = [float(cost.decode_s(4, 1000)) for cost in many]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_efficiency_can_be_differentiated():
    """Any of the numbers may be JAX's, and the lengths a plain int."""
    cost = roofline(LLAMA, H100, efficiency=IDEAL)
    slope = jax.grad(
        lambda mfu: cost._replace(flops_per_s=mfu * 989.4e12).prefill_s(8192)
    )(0.5)
    assert float(slope) == pytest.approx(-float(cost.prefill_s(8192)) / 0.25, rel=1e-4)


def test_lengths_whose_square_overflows_an_integer():
    cost = roofline(LLAMA, H100)
    n = 200_000  # n**2 is beyond int32
    assert cost.prefill_s(np.int32(n)) == cost.prefill_s(float(n))
    assert float(cost.prefill_s(jnp.int32(n))) == pytest.approx(
        float(cost.prefill_s(n)), rel=1e-4
    )


def test_a_step_mixes_prompts_and_answers():
    """A chunk of 512 tokens beside 8 decoding sequences reads the weights once."""
    cost = roofline(
        LLAMA, accelerator("l4"), efficiency=IDEAL._replace(overhead_s=1e-3)
    )
    flops = cost.prefill_flops(2048, 1536) + 8 * cost.decode_flops(1000)
    cache = cost.kv_bytes(2048) + 8 * cost.kv_bytes(1000)
    mixed = float(cost.step_s(flops, cache, 512 + 8))
    apart = float(cost.prefill_s(2048, 1536) + cost.decode_s(8, 1000))
    assert mixed < apart - 1e-3
    assert mixed >= float(cost.prefill_s(2048, 1536))
    assert float(cost.step_s(0, 0, 0)) == 0


def test_the_polynomial_of_a_prefill():
    cost = prefill_cost("llama", roofline(LLAMA, H100))
    assert cost.prefill_s(8192) == pytest.approx(DEFAULT_COST.prefill_s(8192), rel=1e-4)
    with pytest.raises(InputError, match="no polynomial"):
        prefill_cost("gpt-oss", roofline(model("gpt-oss-20b"), H100))


@given(names, st.sampled_from(["pcie5", "nvme4", "ethernet-25g"]), st.integers(1, 2000))
@settings(deadline=None, max_examples=30)
def test_break_even_is_where_loading_begins_to_win_for_good(name, way, suffix):
    cost, path, limit = roofline(model(name), H100), link(way), 4096
    least = break_even_tokens(cost, path, suffix=suffix, limit=limit)

    def wins(n):
        loaded = path.time_s(cost.kv_bytes(n)) + cost.prefill_s(n + suffix, n)
        return loaded <= cost.prefill_s(n + suffix)

    if least is None:
        assert not wins(limit)
    else:
        assert wins(np.arange(least, limit + 1)).all()
        assert least == 1 or not wins(least - 1)


def test_break_even_depends_on_the_link():
    cost = roofline(LLAMA, H100)
    fast, slow = (break_even_tokens(cost, link(w)) for w in ("pcie5", "ethernet-25g"))
    assert fast is not None and slow is not None and fast < slow
    crawl = dataclasses.replace(link("ethernet-25g"), bytes_per_s=1e6)
    assert break_even_tokens(cost, crawl) is None
    for bad in ({"suffix": 0}, {"limit": 0}, {"limit": 10**9}):
        with pytest.raises(InputError):
            break_even_tokens(cost, link("pcie5"), **bad)


@pytest.mark.parametrize(
    "price, per_thousand",
    [(2.49, 0.019762), (1.29, 0.010238), (0.90, 0.007143), (0.50, 0.003968)],
)
def test_price_of_the_reference(price, per_thousand):
    """Section 2.12, [V]: 35 tokens/s, dollars / 126 per 1,000 tokens."""
    found = float(usd_per_million_tokens(price, 35.0)) / 1000
    assert found == pytest.approx(per_thousand, abs=5.1e-7)
    assert usd_per_million_tokens(price, 35.0, utilisation=0.5) == pytest.approx(
        2000 * found
    )
    with pytest.raises(InputError):
        usd_per_million_tokens(price, 35.0, utilisation=0.0)


@pytest.mark.parametrize(
    "efficiency",
    [(0.0, 0.8, 0.0), (1.1, 0.8, 0.0), (0.5, math.nan, 0.0), (0.5, 0.8, -1.0)],
)
def test_senseless_efficiency_is_refused(efficiency):
    with pytest.raises(InputError):
        roofline(LLAMA, H100, efficiency=Efficiency(*efficiency))


def test_a_model_that_does_not_fit_serves_nobody():
    at = Deployment(model("llama-3.1-70b"), H100)
    report = cost_report(at)
    assert report.requests_at_once == 0 and report.kv_budget_gib == 0
    assert report.prefill_s is report.tokens_per_s is report.batch is None
    assert report.usd_per_million_output_tokens is None
    assert report.least_tp == 2 == least_tp(at)
    assert requests_at_once(dataclasses.replace(at, tp=2)) > 0
    assert least_tp(dataclasses.replace(at, context_tokens=2**24)) is None


def test_every_option_of_a_deployment_changes_something():
    at = Deployment(model("llama-3.1-8b"), H100)
    base = cost_report(at)
    for change in (
        {"tp": 2},
        {"weights": "fp8"},
        {"kv": "int4"},
        {"context_tokens": 5000},
        {"context_tokens": 8190, "block_tokens": 4096},
        {"batch": 3},
        {"utilisation": 0.5},
        {"activations_gib": 9.0},
        {"efficiency": Efficiency(0.4, 0.8, 0.0)},
        {"efficiency": Efficiency(0.5, 0.7, 0.0)},
        {"efficiency": Efficiency(0.5, 0.8, 0.01)},
        {"host": link("nvme4")},
        {"usd_per_hour": 1.0},
        {"busy": 0.5},
    ):
        assert cost_report(dataclasses.replace(at, **change)) != base, change
    assert cost_report(at) == base


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 10_000},
        {"batch": 0},
        {"context_tokens": 0},
        {"busy": 0.0},
        {"tp": 3},
        {"usd_per_hour": -1.0},
        {"activations_gib": math.inf},
    ],
)
def test_senseless_deployments_are_refused(change):
    at = Deployment(model("llama-3.1-8b"), H100)
    with pytest.raises(InputError):
        cost_report(dataclasses.replace(at, **change))


def points_of(truth, *, noise=0.0):
    cost = roofline(LLAMA, H100, efficiency=truth)
    draw = np.random.default_rng(0)
    found = []
    for kind, tokens, batch in (
        ("prefill", 64, 1),
        ("prefill", 2048, 1),
        ("prefill", 16384, 2),
        ("decode", 512, 1),
        ("decode", 8192, 32),
    ):
        exact = (
            cost.prefill_s(tokens, 0, batch)
            if kind == "prefill"
            else cost.decode_s(batch, tokens)
        )
        off = 1 + noise * draw.uniform(-1, 1)
        found.append(Point(kind, tokens, batch, float(exact) * off))
    return found


@settings(deadline=None, max_examples=8)
@given(st.floats(0.1, 0.95), st.floats(0.1, 0.95), st.floats(0.0, 0.004))
def test_calibration_finds_the_truth(mfu, mbu, overhead):
    truth = Efficiency(mfu, mbu, overhead)
    fit = calibrate(roofline(LLAMA, H100, efficiency=IDEAL), points_of(truth))
    assert fit.worst < 1e-3
    assert fit.efficiency.mfu == pytest.approx(mfu, rel=0.01)
    assert fit.efficiency.mbu == pytest.approx(mbu, rel=0.02, abs=0.01)


def test_calibration_reports_what_is_left_over():
    truth = Efficiency(0.6, 0.7, 0.001)
    ideal = roofline(LLAMA, H100, efficiency=IDEAL)
    points = points_of(truth, noise=0.1)
    fit = calibrate(ideal, points)
    assert 0.001 < fit.worst < 0.1
    measured = [point.seconds for point in points]
    np.testing.assert_allclose(fit.predicted_s / measured - 1, fit.residuals)
    again = calibrate(ideal, points)
    assert again.efficiency == fit.efficiency  # bit by bit


def test_calibration_says_what_the_points_cannot_tell():
    ideal = roofline(LLAMA, H100, efficiency=IDEAL)
    points = [p for p in points_of(Efficiency(0.6, 0.7, 0.0)) if p.kind == "decode"]
    fit = calibrate(ideal, points)
    assert "mfu" not in fit.determined and "mbu" in fit.determined
    assert fit.efficiency.mfu == Efficiency().mfu
    assert fit.worst < 0.01


@pytest.mark.parametrize("name, tokens", [("llama-3.1-8b", 200), ("gpt-oss-20b", 64)])
def test_points_that_are_bound_by_memory_decide_no_mfu(name, tokens):
    """However the fit ends, and however little the roofline's kink is off."""
    shape = model(name)
    cost = roofline(shape, H100, efficiency=Efficiency(0.7, 0.4, 0.001))
    prefills = [(n, 1) for n in (tokens // 4, tokens // 2, tokens)]
    points = [
        Point("prefill", n, b, round(float(cost.prefill_s(n, 0, b)), 9))
        for n, b in prefills
    ]
    points += [
        Point("decode", n, b, round(float(cost.decode_s(b, n)), 9))
        for n, b in ((128, 1), (8192, 32))
    ]
    ideal = roofline(shape, H100, efficiency=IDEAL)
    fit = calibrate(ideal, points, default=Efficiency(0.6, 0.9, 0.0))
    assert fit.determined == ("mbu", "overhead_s")
    assert fit.efficiency.mfu == 0.6
    assert fit.efficiency.mbu == pytest.approx(0.4, rel=1e-3)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [Point("train", 1, 1, 1.0)],
        [Point("decode", 0, 1, 1.0)],
        [Point("decode", 1, 1, -1.0)],
        [Point("decode", 1, 1, math.nan)],
    ],
)
def test_senseless_points_are_refused(points):
    with pytest.raises(InputError):
        calibrate(roofline(LLAMA, H100), points)


def test_points_from_a_file(tmp_path):
    path = tmp_path / "points.csv"
    text = "\ufeffkind,tokens,batch,seconds\nprefill,512,1,0.02\ndecode,1,4,0.005\n"
    path.write_text(text, encoding="utf-8")
    assert read_points(path) == [
        Point("prefill", 512, 1, 0.02),
        Point("decode", 1, 4, 0.005),
    ]


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "line 1: no column 'kind'"),
        ("kind,tokens,seconds\n", "line 1: no column 'batch'"),
        ("kind,tokens,batch,seconds\n", "line 2: no measured points"),
        ("kind,tokens,batch,seconds,seconds\n", "line 1: two columns 'seconds'"),
        ("kind,tokens,batch,seconds\ndecode,1,1,x\n", "line 2: could not convert"),
        ("kind,tokens,batch,seconds\ndecode,1\n", "line 2: "),
        ("kind,tokens,batch,seconds\ndecode,1,1,1\neat,1,1,1\n", "line 3: .*'eat'"),
        ("kind,tokens,batch,seconds\ndecode,1,1,0\n", "line 2: .*seconds is 0"),
        ("kind,tokens,batch,seconds\ndecode,1,1,1,9\n", "line 2: more cells"),
        (f"kind,tokens,batch,seconds\ndecode,{10**20},1,1\n", "1,000,000,000 or less"),
        (f"kind,tokens,batch,seconds\n{'x' * 200_000},1,1,1\n", "give a CSV file"),
    ],
)
def test_files_without_points(tmp_path, text, words):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_points(path)
    with pytest.raises(InputError, match="gone.csv"):
        read_points(tmp_path / "gone.csv")
