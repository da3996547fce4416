"""The real traces: the published sizes and facts, to the decimal."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from perc.errors import TraceWarning
from perc.summary import continued_requests, summarize
from perc.traces import load, save
from perc.traces.build import factorize
from perc.types import Trace

pytestmark = pytest.mark.real_trace
MOONCAKE = "mooncake_conversation_trace.jsonl.gz"
SESSIONS = "claude_code_sessions_v6.jsonl.xz"


def load_quietly(path: Path, **kwargs) -> Trace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return load(path, **kwargs)


@pytest.mark.parametrize(
    ("name", "told", "block_tokens", "requests", "blocks", "accesses", "ideal"),
    [
        (MOONCAKE, {}, 512, 12_031, 182_790, 288_500, 36.6),
        (
            "ragpulse_b16.jsonl.xz",
            {"block_tokens": 16},
            16,
            7106,
            889182,
            1300057,
            31.6,
        ),
        ("RAGPulse_data.tar.xz", {}, 16, 7_106, 889_182, 1_300_057, 31.6),
        ("lmcache_agent_b16.jsonl.xz", {}, 16, 1_619, 26_228, 261_489, 90.0),
    ],
)
def test_sizes(
    traces_folder, name, told, block_tokens, requests, blocks, accesses, ideal
):
    trace = load_quietly(traces_folder / name, **told)
    assert trace.block_tokens == block_tokens
    assert trace.n_requests == requests
    assert trace.n_blocks == blocks
    assert trace.n_accesses == accesses
    assert round(100 * (trace.prev >= 0).mean(), 1) == ideal


def test_claude_code_derived(traces_folder):
    trace = load(traces_folder / "claude_code_v6_interleaved24h_b512.jsonl.xz")
    assert trace.block_tokens == 512
    assert trace.n_requests == 25_294
    assert len(np.unique(trace.session)) == 462  # 422 sessions and 40 sub-agents


@pytest.mark.parametrize(("name", "requests"), [("conv", 19_366), ("code", 8_819)])
def test_azure(traces_folder, name, requests):
    trace = load(traces_folder / f"AzureLLMInferenceTrace_{name}.csv.gz")
    assert trace.n_requests == requests
    assert trace.n_accesses == 0


def test_azure_rates(traces_folder):
    for name, rate, cv in [("conv", 5.5, 1.1), ("code", 2.6, 13.2)]:
        trace = load(traces_folder / f"AzureLLMInferenceTrace_{name}.csv.gz")
        gaps = np.diff(trace.arrival_s)
        assert round(summarize(trace)["requests_per_s"], 1) == rate
        assert round(gaps.std() / gaps.mean(), 1) == cv


def test_mooncake_facts(traces_folder):
    trace = load(traces_folder / MOONCAKE)
    facts = summarize(trace)
    assert np.count_nonzero(continued_requests(trace) >= 0) == 3_959
    assert facts["turns"][:6] == [8_072, 2_045, 790, 387, 216, 130]
    assert [round(p, 2) for p in facts["continued"][:5]] == [
        0.25,
        0.39,
        0.49,
        0.56,
        0.6,
    ]
    gaps = [round(gap) for gap in facts["follow_up_gap_s"].values()]
    assert gaps == [39, 123, 474, 1_455]
    assert round(facts["never_reused_share"], 2) == 0.76
    first = trace.block[trace.start]
    assert (first == 0).all()  # block 0 is shared by every request


def test_ragpulse_original_is_cut_as_the_derived_file(traces_folder):
    ours = load_quietly(traces_folder / "RAGPulse_data.tar.xz")
    theirs = load_quietly(traces_folder / "ragpulse_b16.jsonl.xz", block_tokens=16)
    for name in ("block", "start", "session", "turn", "kind", "arrival_s"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


def test_parquet_keeps_the_mooncake_trace(traces_folder, tmp_path):
    trace = load(traces_folder / MOONCAKE)
    save(trace, tmp_path / "t.parquet")
    again = load(tmp_path / "t.parquet")
    assert summarize(again) == summarize(trace)
    assert np.array_equal(again.block, trace.block)


@pytest.mark.slow
def test_claude_code_sessions(traces_folder):
    trace = load_quietly(traces_folder / SESSIONS, start_seed=1)
    assert trace.block_tokens == 64
    assert trace.n_requests == 25_294
    assert trace.n_blocks == 1_492_443
    assert trace.n_accesses == 36_331_903
    assert round(100 * (trace.prev >= 0).mean(), 1) == 95.9
    # The derived file was made with this seed, in blocks of 512 tokens: the last
    # 64-token block of each of them is shared exactly as they are.
    derived = load(traces_folder / "claude_code_v6_interleaved24h_b512.jsonl.xz")
    for name in ("input_tokens", "output_tokens", "session", "turn"):
        assert np.array_equal(getattr(trace, name), getattr(derived, name)), name
    assert trace.arrival_s == pytest.approx(derived.arrival_s, abs=0.01)
    full = trace.input_tokens[trace.request] // 512
    last = (trace.depth % 8 == 7) & (trace.depth < 8 * full)
    assert np.array_equal(factorize(trace.block[last]), derived.block)
