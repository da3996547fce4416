"""Its cards, digit for digit; `tests/test_roofline.py` has the right figures."""

import pytest

from perc.cachepilot.scorecard import (
    CARDS,
    MODELS,
    SCORED,
    budget,
    downgrade,
    saved,
    score,
)

LLAMA_2, LLAMA_3 = MODELS["llama2_7b"], MODELS["llama3_8b"]


@pytest.mark.parametrize("name", CARDS)
def test_budgets(name):
    by_memory = {80: (267, 535, 67.02), 40: (107, 215, 26.86), 24: (43, 87, 10.79)}
    fp16, int8, extra = by_memory[int(CARDS[name].memory_gib)]
    found = budget(CARDS[name], LLAMA_2)
    assert found[:3] == (fp16, int8, int8)
    assert round(found.claimed_extra, 2) == extra


@pytest.mark.parametrize(
    "name, usd",
    [
        ("h100_sxm", 0.019762),
        ("h100_pcie", 0.016349),
        ("a100_80", 0.010238),
        ("a100_40", 0.007143),
        ("rtx4090", 0.003968),
    ],
)
def test_prices(name, usd):
    found = budget(CARDS[name], LLAMA_2)
    assert found.usd_per_1k_tokens == pytest.approx(usd, abs=5.1e-7)


def test_its_advice_to_downgrade():
    assert downgrade("a100_80", LLAMA_2, 100) == "a100_40"
    assert downgrade("rtx3090", LLAMA_2, 100) is None


def test_a_model_that_does_not_fit_holds_a_session():
    """A fault kept: 70e9 parameters of two bytes are 130 GiB."""
    assert budget(CARDS["h100_sxm"], MODELS["llama2_70b"])[:3] == (1, 1, 1)


def test_its_cost_report():
    found = saved(CARDS["a100_80"], LLAMA_2, 1011.8, 1350.8)
    assert found.recompute_s == pytest.approx(0.000850120, abs=1e-9)
    assert found.saved_s == pytest.approx(0.000284830, abs=1e-9)
    assert found.saved_usd == pytest.approx(1.0e-7, rel=0.03)
    assert found.int8_gain == 268
    assert found.effective_gib == pytest.approx(66.961484, abs=1e-6)


@pytest.mark.parametrize(
    "name, usable, ridge, sessions, bounds, per_usd",
    [
        (
            "h200_141",
            126.0988,
            206.1458,
            (126, 252),
            (4470.3484, 8940.6967),
            6_437_302,
        ),
        ("h100_80", 65.0988, 295.3731, (65, 130), (3119.9306, 6239.8612), None),
        ("a100_80", 65.0988, 161.2403, (65, 130), (1802.1092, 3604.2184), 5_190_074),
        ("a10g", 9.0988, 208.3333, (9, 18), (558.7935, 1117.5871), 4_023_314),
        ("l4", 9.0988, 403.3333, (9, 18), (279.3968, 558.7935), 2_514_571),
    ],
)
def test_its_scorecard(name, usable, ridge, sessions, bounds, per_usd):
    half, eight = (score(SCORED[name], LLAMA_3, kv) for kv in ("fp16", "fp8"))
    assert half.usable_gib == pytest.approx(usable, abs=5.1e-5)
    assert half.ridge == pytest.approx(ridge, abs=5.1e-5)
    assert (half.intensity, eight.intensity) == (1, 2)
    assert (half.sessions, eight.sessions) == sessions
    found = (half.tokens_per_s, eight.tokens_per_s)
    assert found == pytest.approx(bounds, abs=5.1e-5)
    if per_usd is None:
        assert eight.tokens_per_usd is None
    else:
        assert round(eight.tokens_per_usd or 0) == per_usd
