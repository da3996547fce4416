"""Engines and settings: the table, what a trace measures, what a model needs."""

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import perc
from perc.advice import KINDS, OFFLOADS, Needs, advise, facts, holds, kv_formats
from perc.advice_report import Asked, command_line, recommend
from perc.advice_sizing import size
from perc.advice_traffic import Sharing, sharing, worth
from perc.deployment import Deployment, cost_report
from perc.errors import InputError
from perc.hardware import ACCELERATORS, accelerator
from perc.kv_memory import KV_FORMATS
from perc.model_shapes import MODELS, model
from perc.prefix_traces import trace_of_tokens
from tests.strategies import traces

DOCUMENT = Path(__file__).parents[1] / "docs" / "advice.md"
CHAT = perc.make("chat", requests=1500, seed=3)  # one size, one compiled program
SMALL, LARGE = model("llama-3.1-8b"), model("llama-3.1-70b")
NEEDS = st.builds(
    Needs,
    vendor=st.sampled_from(KINDS),
    users=st.integers(1, 512),
    context=st.integers(1, 200_000),
    nodes=st.integers(1, 4),
    disaggregated=st.booleans(),
    least_latency=st.booleans(),
    priorities=st.booleans(),
    shared=st.floats(0, 1),
    turns=st.floats(1, 50),
    offload=st.sampled_from(OFFLOADS),
    tp=st.integers(1, 8),
    kv=st.sampled_from(["fp16", "fp8"]),
    policy=st.sampled_from(["unknown", "lru", "lfu_in_cache", "perc"]),
)


# The table


@pytest.mark.parametrize(
    "needs, engine",
    [
        (Needs(vendor="none"), "llama.cpp"),
        (Needs(vendor="none", shared=0.9, least_latency=True), "llama.cpp"),
        (Needs(least_latency=True), "tensorrt-llm"),
        (Needs(least_latency=True, vendor="amd"), "vllm"),
        (Needs(shared=0.5), "sglang"),
        (Needs(shared=0.3, vendor="amd"), "sglang"),
        (Needs(shared=0.29), "vllm"),
        (Needs(nodes=2, disaggregated=True), "dynamo"),
        (Needs(nodes=2, disaggregated=True, shared=0.9), "dynamo"),
        (Needs(nodes=2), "vllm"),
        (Needs(disaggregated=True), "vllm"),
        (Needs(), "vllm"),
    ],
)
def test_engine_of_the_reference(needs, engine):
    assert advise(needs).engine == engine


@settings(max_examples=200, deadline=None)
@given(NEEDS, st.sampled_from([None, *facts()["engines"]]))
def test_advice_is_total_and_the_same_twice(needs, engine):
    found = advise(needs, engine=engine)
    assert found == advise(needs, engine=engine)
    assert found.engine in facts()["engines"] and found.engine not in found.others
    assert found.settings and found.reason.why
    assert not re.search(r"\{\w+\}", command_line(found))
    json.dumps(found.as_dict(), allow_nan=False)


def test_every_line_of_the_table_has_a_source_a_date_and_known_needs():
    table = facts()
    names = {field.name for field in fields(Needs)}
    rows = [row for entry in table["engines"].values() for row in entry["settings"]]
    used = set()
    for row in table["choice"] + rows:
        assert row["why"] and set(row["when"]) <= names
        used.add(row["fact"])
    assert used == set(table["facts"])
    for fact in table["facts"].values():
        assert fact["source"] and re.fullmatch(r"20\d\d-\d\d-\d\d", fact["date"])
        assert "://" not in fact["source"]
    assert {row["engine"] for row in table["choice"]} == set(table["engines"])
    assert set(table["not_chosen"]) == set(table["engines"])
    assert table["choice"][-1]["when"] == {}  # so that one always holds


@pytest.mark.parametrize("engine", facts()["engines"])
def test_every_need_that_the_table_names_changes_its_settings(engine):
    usual = advise(Needs(), engine=engine).settings
    other = Needs(
        users=3,
        context=99,
        shared=0.6,
        turns=4.0,
        offload="disk",
        tp=4,
        kv="fp8",
        policy="perc",
        priorities=True,
        disaggregated=True,
        nodes=2,
    )
    named = {k for row in facts()["engines"][engine]["settings"] for k in row["when"]}
    for name in named:
        changed = replace(Needs(), **{name: asdict(other)[name]})
        if name == "priorities":  # where only what is offloaded has priorities
            changed = replace(changed, offload="host")
            usual_then = advise(Needs(offload="host"), engine=engine).settings
            assert advise(changed, engine=engine).settings != usual_then
        else:
            assert advise(changed, engine=engine).settings != usual


def test_conditions():
    assert holds({}, Needs())
    assert holds({"turns": {"min": 2}}, Needs(turns=2.0))
    assert not holds({"turns": {"min": 2}}, Needs(turns=1.9))
    assert holds({"kv": ["fp8"]}, Needs(kv="fp8"))
    assert not holds({"kv": {"other_than": ["fp8"]}}, Needs(kv="fp8"))
    assert not holds({"priorities": True, "kv": ["fp16"]}, Needs())


def test_values_stand_in_the_settings():
    needs = Needs(model="m", offload="host", host_gib=64.0, tp=2, policy="perc")
    assert command_line(advise(needs)) == (
        "PERC_POLICY=perc \\\nvllm serve m \\\n  --enable-prefix-caching \\\n"
        "  --block-size 16 \\\n  --tensor-parallel-size 2 \\\n"
        "  --kv-offloading-size 64 --kv-offloading-backend native"
    )
    found = advise(Needs(offload="remote"))
    assert '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}' in (
        command_line(found)
    )
    ranks = advise(Needs(offload="host", host_gib=64.0, tp=2), engine="sglang")
    assert "--hicache-size 35 " in command_line(ranks)  # 64 GiB are 68.7 GB, by two
    llama = advise(Needs(vendor="none", users=3, context=1000))
    assert "--ctx-size 3000" in command_line(llama)
    assert "host_cache_size: 1073741824" in str(
        advise(Needs(offload="host", host_gib=1.0), engine="tensorrt-llm").settings
    )


@pytest.mark.parametrize("engine", facts()["engines"])
@pytest.mark.parametrize("kv", KV_FORMATS)
def test_a_format_of_the_cache_is_set_or_refused(engine, kv):
    if kv not in kv_formats(engine):
        with pytest.raises(InputError, match=f"for a cache in {kv}; take --kv fp16, "):
            advise(Needs(kv=kv), engine=engine)
        return
    usual, found = advise(Needs(), engine=engine), advise(Needs(kv=kv), engine=engine)
    assert (found.settings != usual.settings) == (KV_FORMATS[kv].bits < 16)


def test_the_formats_of_every_engine():
    assert kv_formats("vllm") == tuple(KV_FORMATS)
    assert "--kv-cache-dtype int8_per_token_head" in command_line(
        advise(Needs(kv="int8"))
    )
    for engine in facts()["engines"]:  # what sizing falls back to
        assert {"fp16", "bf16", "fp8"} <= set(kv_formats(engine))


def test_another_engine_can_be_asked_for():
    found = advise(Needs(shared=0.9), engine="vllm")
    assert found.engine == "vllm" and "the rules take SGLang" in found.reason.why
    assert advise(Needs(), engine="vllm").reason == advise(Needs()).reason


@pytest.mark.parametrize(
    "needs, said",
    [
        (Needs(users=0), "users is 0"),
        (Needs(shared=1.5), "shared is 1.5"),
        (Needs(turns=0.5), "turns is 0.5"),
        (Needs(offload="moon"), "no tier is called 'moon'. There are: none, host"),
        (Needs(vendor="x"), "no vendor is called 'x'"),
        (Needs(host_gib=0.0), "host_gib is 0"),
        (Needs(kv="foo"), "no KV format 'foo'; there are fp16"),
    ],
)
def test_needs_that_are_not_as_they_must_be(needs, said):
    with pytest.raises(InputError, match=re.escape(said)):
        advise(needs)


def test_unknown_engine():
    with pytest.raises(InputError, match="no engine is called 'tgi'. There are: vllm"):
        advise(Needs(), engine="tgi")


# Traffic


def plain_sharing(trace) -> tuple[float, float]:
    """Shares of own and others' tokens, access by access."""
    sent: dict[int, set[int]] = {}
    own = others = 0
    for at, block in enumerate(trace.block.tolist()):
        session, tokens = int(trace.session[trace.request[at]]), int(trace.tokens[at])
        senders = sent.setdefault(block, set())
        if session in senders:
            own += tokens
        elif senders:
            others += tokens
        senders.add(session)
    total = int(trace.input_tokens.sum())
    return (own / total, others / total) if total else (0.0, 0.0)


@settings(max_examples=100, deadline=None)
@given(traces())
def test_sharing_is_what_it_says(trace):
    assume(trace.n_accesses)
    found = sharing(trace)
    assert (found.own, found.others) == pytest.approx(plain_sharing(trace))
    assert found.own + found.others + found.new == pytest.approx(1)


def test_worth_of_a_cache():
    trace, found = CHAT, worth(CHAT, 600)
    (row,) = perc.compare(trace, ["perc"], [600]).rows
    assert found.hits["perc"] == row.token_hit_ratio
    assert found.larger[1] == pytest.approx(found.hits["lru"])
    assert list(found.larger.values()) == sorted(found.larger.values())
    shares = sharing(trace)
    assert found.infinite == pytest.approx(shares.own + shares.others)
    assert found.larger[found.enough] >= 0.95 * found.infinite or found.enough == 8
    assert worth(trace, trace.n_blocks).best == "lru"  # nothing keeps more than all


def test_another_policy_is_named_where_it_keeps_more():
    found = worth(CHAT, 1500)
    assert found.best == "perc"
    assert found.hits["perc"] >= found.hits["lru"] + 0.01


# Sizes


def test_a_model_gets_the_least_accelerators_that_hold_it():
    found = size(Deployment(LARGE, accelerator("h100"), context_tokens=8192), users=1)
    assert found.tp == 2 and found.kv == "fp16" and not found.notes
    kept = Deployment(LARGE, accelerator("h100"), tp=8, context_tokens=8192)
    assert size(kept, users=1).tp == 8


def test_the_cache_shrinks_before_users_wait():
    at = Deployment(SMALL, accelerator("h100"), context_tokens=8192)
    fits = cost_report(at).requests_at_once
    assert size(at, users=fits).kv == "fp16"
    found = size(at, users=fits + 1)
    assert found.kv == "fp8" and found.at_once >= 2 * fits
    assert size(replace(at, kv="bf16"), users=fits + 1) == found
    assert f"{fits} of {fits + 1} requests" in found.notes[0]
    waiting = size(at, users=10 * fits)
    assert (
        f"{10 * fits - waiting.at_once} of {10 * fits} requests will wait"
        in (waiting.notes[1])
    )


def test_targets_that_the_model_says_are_missed():
    at = Deployment(SMALL, accelerator("l4"), context_tokens=4096)
    (first,) = size(at, users=1, ttft_s=0.5).notes
    share = float(re.findall(r"needs (\d+)% of itself cached", first)[0]) / 100
    roof = at.roofline()
    assert roof.prefill_s(4096, (share - 0.02) * 4096) > 0.5
    assert roof.prefill_s(4096, (share + 0.02) * 4096) < 0.5
    assert not size(at, users=1, ttft_s=60.0, itl_s=1.0).notes
    many = size(at, users=6, itl_s=0.0795).notes[-1]
    most = int(re.findall(r"; (\d+) at once", many)[0])
    assert roof.decode_s(most, 4096) <= 0.0795 < roof.decode_s(most + 1, 4096)
    with pytest.raises(InputError, match="ttft is 0"):
        size(at, users=1, ttft_s=0.0)


def test_a_model_that_no_number_of_cards_holds():
    at = Deployment(LARGE, accelerator("l4"), context_tokens=2**24)
    with pytest.raises(InputError, match="no number of l4 holds llama-3.1-70b"):
        size(at, users=1)


def test_blocks_are_those_of_all_accelerators():
    at = Deployment(LARGE, accelerator("h100"), tp=4, context_tokens=8192)
    found, report = size(at, users=1), cost_report(at)
    assert found.blocks(16) == pytest.approx(
        report.kv_budget_gib * 4 * 2**30 / (327_680 * 16), abs=1
    )


# Together


def system_and_questions(sessions: int):
    """Conversations of one turn with one long system prompt."""
    system = list(range(96))
    prompts = [[*system, *range(1000 * n, 1000 * n + 32)] for n in range(1, sessions)]
    return trace_of_tokens(prompts, session=list(range(1, sessions)))


def test_measured_sharing_decides():
    found = recommend("h100", trace=system_and_questions(40))
    assert found.advice.engine == "sglang"
    assert found.sharing is not None
    assert found.sharing.others == pytest.approx(0.75, abs=0.03)
    assert found.needs.context == 128
    chat = perc.make("chat", requests=300, system_tokens=0)
    assert recommend("h100", trace=chat).advice.engine == "vllm"
    assert recommend("h100", Asked(shared=0.5)).advice.engine == "sglang"
    with pytest.raises(InputError, match="give one of them"):
        recommend("h100", Asked(shared=0.5), trace=chat)


def test_a_tier_is_advised_where_hits_are_left():
    tight = recommend("l4", Asked(context=4096), shape=SMALL, trace=CHAT)
    assert tight.needs.offload == "host" and "LRU with more" in tight.notes[-1]
    assert tight.worth is not None and tight.sizing is not None
    assert tight.needs.host_gib == max(
        1, round(tight.worth.enough * tight.sizing.cache_gib)
    )
    few = perc.make("chat", requests=20, seed=3)
    roomy = recommend("b200", Asked(context=4096), shape=SMALL, trace=few)
    assert roomy.needs.offload == "none" and "no size more than" in roomy.notes[-1]
    assert "nothing was measured" in recommend("h100").notes[-1]
    said = recommend("h100", Asked(offload="disk"), shape=SMALL)
    assert said.needs.offload == "disk" and said.notes == ()


@pytest.mark.parametrize("card", [card.name for card in ACCELERATORS])
def test_every_accelerator_has_a_vendor(card):
    vendor = recommend(card).needs.vendor
    source = accelerator(card).source
    expected = {"AMD": "amd", "Intel": "other"}.get(source.split()[0], "nvidia")
    assert vendor == expected


@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_every_model_is_served_from_its_repository(shape):
    served = recommend("none", shape=shape).needs.model
    assert re.fullmatch(r"[\w-]+/[\w.-]+", served) and model(served).name == shape.name


def test_a_reason_is_true_of_what_was_asked():
    waiting = recommend("h100", Asked(users=16, shared=0.5), shape=LARGE)
    assert "8 of 16 requests will wait" in " ".join(waiting.notes)
    (small,) = (s for s in waiting.advice.settings if "kv-cache-dtype" in s.flags)
    assert "all requests fit" not in small.why
    least = "2 accelerators are the least that hold the model"
    assert least in " ".join(waiting.notes)
    chosen = recommend("h100", Asked(tp=4), shape=SMALL)
    (tp,) = (s for s in chosen.advice.settings if "parallel-size 4" in s.flags)
    assert "least" not in tp.why + " ".join(chosen.notes)


@pytest.mark.parametrize(
    "gpu, asked, said",
    [
        ("h100", Asked(disaggregated=True), "--disaggregated alone chooses no engine"),
        ("h100", Asked(nodes=3), "--nodes 3 alone chooses no engine"),
        ("mi300x", Asked(least_latency=True), "--least-latency chooses no engine here"),
    ],
)
def test_a_need_that_chose_nothing_is_said(gpu, asked, said):
    found = recommend(gpu, asked)
    assert found.advice.engine == "vllm" and said in found.notes[-1]
    assert "no rule asks" in found.advice.reason.why


def test_a_need_that_chose_is_not_said():
    for asked in (Asked(disaggregated=True, nodes=2), Asked(least_latency=True)):
        assert len(recommend("h100", asked).notes) == 1  # of the tier


@pytest.mark.parametrize("name", ["host_gib", "disk_gib", "turns"])
@pytest.mark.parametrize("offload", OFFLOADS)
def test_nought_is_not_nothing(name, offload):
    with pytest.raises(InputError, match=f"{name} is 0"):
        recommend("h100", replace(Asked(offload=offload), **{name: 0.0}))


def test_a_size_of_no_setting_is_said():
    for name, flag in (("host_gib", "--host-gib"), ("disk_gib", "--disk-gib")):
        unused = recommend("h100", replace(Asked(), **{name: 5.0}))
        assert f"{flag} 5 changes nothing: no setting of vLLM" in unused.notes[-1]
        used = recommend("h100", replace(Asked(offload="disk"), **{name: 5.0}))
        assert not any(flag in note and "nothing:" in note for note in used.notes)


def test_a_guessed_size_is_said():
    (guess,) = recommend("h100", Asked(offload="host")).notes
    assert guess.startswith("16 GiB are a guess") and "--host-gib" in guess
    host, disk = recommend("h100", Asked(offload="disk")).notes
    assert host.startswith("16 GiB") and disk.startswith("64 GiB are a guess")
    assert recommend("h100", Asked(offload="host", host_gib=7.0)).notes == ()
    assert recommend("h100", Asked(offload="host"), shape=SMALL).notes == ()
    turns = recommend("none", Asked(turns=3.0))  # whose slots go to memory
    assert "16 GiB are a guess" in turns.notes[-1]


@pytest.mark.parametrize(
    "gpu, engine, said",
    [
        ("mi300x", "tensorrt-llm", "TensorRT-LLM runs on NVIDIA's accelerators only"),
        ("gaudi3", "tensorrt-llm", "TensorRT-LLM runs on NVIDIA's accelerators only"),
        ("none", "tensorrt-llm", "TensorRT-LLM runs on NVIDIA's accelerators only"),
        ("none", "vllm", "vLLM is made for accelerators"),
        ("none", "dynamo", "Dynamo is made for accelerators"),
        ("none", "llama.cpp", None),
        ("mi300x", "vllm", None),
        ("h100", "tensorrt-llm", None),
    ],
)
def test_an_engine_on_what_it_does_not_run_on_is_said(gpu, engine, said):
    first, *more = recommend(gpu, Asked(engine=engine)).notes
    assert first.startswith("No tier")
    assert more == [] if said is None else said in more[0]


def test_more_accelerators_than_a_machine_has_are_said():
    found = recommend("h100", shape=model("deepseek-v3"))
    assert found.needs.tp == 16
    assert "16 accelerators are more than the 8" in " ".join(found.notes)
    eight = recommend("h100", Asked(tp=8), shape=LARGE)
    assert "more than" not in " ".join(eight.notes)


def test_no_accelerator_has_no_sizes():
    found = recommend("CPU", shape=SMALL, trace=system_and_questions(5))
    assert found.advice.engine == "llama.cpp" and found.sizing is None
    assert isinstance(found.sharing, Sharing)
    json.dumps(found.as_dict(), allow_nan=False)


def test_targets_need_something_to_judge_them():
    for gpu, shape in (("h100", None), ("none", SMALL)):
        with pytest.raises(InputError, match="give --model, and a --gpu"):
            recommend(gpu, Asked(itl_s=0.1), shape=shape)


def test_results_are_plain_numbers():
    trace = perc.make("chat", requests=20, seed=3)
    found = recommend("b200", shape=SMALL, trace=trace).as_dict()
    again = recommend("b200", shape=SMALL, trace=trace).as_dict()
    assert json.dumps(found, allow_nan=False) == json.dumps(again, allow_nan=False)
    assert not any(isinstance(v, np.generic) for v in found["sharing"].values())


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_document_has_every_rule_and_its_example_runs(capsys):
    text = DOCUMENT.read_text()
    for entry in facts()["engines"].values():
        assert f"| {entry['title']} |" in text
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(code, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out == "SGLang\nllama.cpp\n"
