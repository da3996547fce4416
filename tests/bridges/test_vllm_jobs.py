"""Jobs of `perc vllm-benchmark`: requests, script, and what is made of results."""

import json
import subprocess
import sys

import numpy as np
import pytest

import perc
from perc.bridges.vllm_jobs import arms_of, prompts_of, render, requests_of_trace
from perc.bridges.vllm_trial import run_all, tokens_of
from perc.profile_rows import conversations
from perc.report.trial_tables import sentences, spread, trials

STAND_IN = """
import json, sys
job = json.load(open(sys.argv[1]))
arm = job["arms"][0]
found = 2 if arm["policy"] else 0
answer = dict(ttft_s=0.5, e2e_s=1.0, input_tokens=4, hit_tokens=found, output=[7])
json.dump({"answers": [answer] * len(job["requests"]), "seconds": 2.0},
          open(sys.argv[2], "w"))
"""


def job(requests, repeats=2):
    return {
        "arms": arms_of(["m"], ["stock", "perc"]),
        "repeats": repeats,
        "options": {},
        "at_once": 1,
        "paced": False,
        "requests": requests,
    }


def test_equal_blocks_are_equal_tokens_and_nothing_else_is():
    trace = perc.make("chat", requests=60)
    asked = requests_of_trace(trace, limit=60, answer_tokens=8, speed=2.0)
    assert len(asked) == 60 and all(1 <= r["output_tokens"] <= 8 for r in asked)
    prompts = [tokens_of(r["blocks"], 32_000) for r in asked]
    assert [len(p) for p in prompts] == trace.input_tokens.tolist()
    times = [r["arrival_s"] for r in asked]
    assert times[0] == 0 and np.allclose(np.diff(times), np.diff(trace.arrival_s) / 2)
    size = trace.block_tokens
    for r, prompt in enumerate(prompts):
        a, b = int(trace.start[r]), int(trace.stop[r])
        for i, access in enumerate(range(a, b)):
            before = int(trace.prev[access])
            if before < 0:
                continue
            other = int(np.searchsorted(trace.stop, before, side="right"))
            place = (before - int(trace.start[other])) * size
            n = int(trace.tokens[access])
            assert prompt[i * size : i * size + n] == prompts[other][place : place + n]
    firsts = {tuple(p[:size]) for p in prompts}
    assert len(firsts) == len({int(trace.block[a]) for a in trace.start})


def test_a_conversation_asks_with_all_that_was_said():
    lists = [
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": "b"},
        {"from": "human", "value": "c"},
    ]
    rows = [{"conversations": lists}, {"conversations": lists[:1]}]
    assert prompts_of(conversations("made", rows)) == ["a", "a\nb\nc", "a"]


def test_arms_are_every_model_under_every_policy():
    arms = arms_of(["a", "b"], ["stock", "perc"])
    assert [(a["model"], a["policy"]) for a in arms] == [
        ("a", None),
        ("a", "perc"),
        ("b", None),
        ("b", "perc"),
    ]
    with pytest.raises(ValueError, match="stands twice"):
        arms_of(["a"], ["perc", "perc"])


def test_arms_come_in_turn_and_each_engine_is_told_its_policy(tmp_path):
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    said = []
    asked = job([{"blocks": [[1, 4]], "output_tokens": 1, "arrival_s": 0.0}] * 3)
    found = run_all(asked, str(script), said.append)
    assert [(f["repeat"], f["arm"]) for f in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert said[1] == "repeat 1 of 2: perc"
    table = trials(asked, found)
    assert table["hit_share"].to_list() == [0.0, 0.5, 0.0, 0.5]
    assert table["output_per_s"].to_list() == [1.5] * 4
    assert table["same_answers"].to_list() == [3] * 4


def test_an_engine_that_fails_says_why(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('no such model')")
    with pytest.raises(RuntimeError, match="no such model"):
        run_all(job([]), str(script), lambda words: None)


def test_a_rendered_job_is_one_file_that_asks_for_vllm_only(tmp_path):
    asked = job([{"blocks": [[1, 4]], "output_tokens": 1, "arrival_s": 0.0}])
    script = tmp_path / "job.py"
    script.write_text(render(asked, script))
    # A stand-in for vLLM that fails as soon as it is used shows that the job got there.
    (tmp_path / "vllm.py").write_text(
        "class LLM:\n    def __init__(self, **a): 1 / 0\nSamplingParams = None\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "out.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
    )
    assert "ZeroDivisionError" in done.stderr
    assert "import perc" not in script.read_text().replace("perc is not", "")
    assert not (tmp_path / "out.json").exists()


def result(ttfts):
    answers = [
        {"ttft_s": t, "e2e_s": t, "input_tokens": 10, "hit_tokens": 5, "output": [1]}
        for t in ttfts
    ]
    return {"answers": answers, "seconds": 1.0}


def test_arms_are_compared_repeat_by_repeat():
    asked = job([{}], repeats=3)
    # The machine's mood moves both arms tenfold; perc always takes half of the time.
    found = [
        {"arm": arm, "repeat": repeat, **result([mood / (1 + arm)])}
        for repeat, mood in enumerate([1.0, 10.0, 3.0])
        for arm in (0, 1)
    ]
    (said,) = sentences(trials(asked, found))
    assert (
        said == "perc: mean TTFT is 0.50 times stock's (0.50 to 0.50, beyond chance)."
    )
    (alone,) = sentences(trials(asked, found[:2]))
    assert "one repeat tells nothing of chance" in alone
    noisy = [
        {"arm": arm, "repeat": repeat, **result([t])}
        for repeat, (a, b) in enumerate([(1.0, 2.0), (2.0, 1.0), (1.0, 1.1)])
        for arm, t in enumerate((a, b))
    ]
    assert "may be chance" in sentences(trials(asked, noisy))[0]


def test_the_interval_is_students():
    mean, half = spread(np.array([1.0, 2.0, 3.0]))
    assert mean == 2 and half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


def test_what_is_rendered_is_the_job(tmp_path):
    asked = job([{"text": "a 'quoted'\nline", "output_tokens": 1, "arrival_s": 0.0}])
    script = tmp_path / "job.py"
    found = {}
    exec(compile(render(asked, script), "job.py", "exec"), found)
    import base64
    import zlib

    assert json.loads(zlib.decompress(base64.b85decode(found["JOB"]))) == asked
