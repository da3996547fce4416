"""Serves the same requests by one vLLM engine after another, and says what each did.

    python vllm_trial.py JOB.json OUT.json       one engine: arm 0 of the job
    python vllm_trial.py JOB.json --all OUT.json every arm and repeat, a process each

Needs vLLM and nothing else, so that `perc render-job` can put it into one file with a
job. perc must be installed beside vLLM where an arm names a policy of perc.

A job is an object:
    arms       [{"name", "model", "policy" (null = vLLM as it is)}]
    repeats    how often each arm serves all requests, in an engine of its own
    options    keyword arguments of vLLM's `LLM`, for all arms
    at_once    requests in the engine at a time
    paced      whether requests wait for their `arrival_s`
    requests   [{"text"} or {"blocks": [[id, tokens], ...], and "output_tokens",
                "arrival_s", "hints"}]; a block becomes the same tokens wherever it is
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import deque

FIRST_TOKEN = 3  # below it are a model's own


def tokens_of(blocks, vocabulary):
    """Token ids of a chain of blocks: an id gives the same ones in every prompt."""
    found = []
    for block, count in blocks:
        draw = random.Random(block)
        found += [draw.randrange(FIRST_TOKEN, vocabulary) for _ in range(count)]
    return found


def serve(job, arm):
    """One engine serves all requests: {"answers": one a request, "seconds"}."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=arm["model"], **job["options"])
    engine = llm.llm_engine
    settings = engine.model_config
    vocabulary, longest = settings.get_vocab_size(), settings.max_model_len
    if arm["policy"] is not None and not _plugged_in():
        raise SystemExit(
            f"perc: arm {arm['name']}: perc is not installed beside vLLM, so "
            "PERC_POLICY does nothing. pip install perc there."
        )
    given = []
    for request in job["requests"]:
        params = SamplingParams(
            max_tokens=request["output_tokens"],
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
            extra_args=request.get("hints"),
        )
        prompt = request.get("text")
        if prompt is None:
            room = longest - request["output_tokens"]
            ids = tokens_of(request["blocks"], vocabulary)[:room]
            prompt = {"prompt_token_ids": ids}
        given.append((prompt, params, request["arrival_s"]))
    _warm_up(llm, given[0])
    return _loop(engine, given, job["at_once"], job["paced"])


def _plugged_in():
    from importlib.metadata import entry_points

    names = {point.name for point in entry_points(group="vllm.general_plugins")}
    return "perc" in names


def _warm_up(llm, first):
    """Compiles and allocates; then the cache is empty again."""
    llm.generate(first[0], first[1], use_tqdm=False)
    llm.reset_prefix_cache()


def _loop(engine, given, at_once, paced):
    waiting, began, answers = deque(enumerate(given)), {}, [None] * len(given)
    start = time.perf_counter()
    while waiting or began:
        now = time.perf_counter() - start
        while waiting and len(began) < at_once:
            i, (prompt, params, arrival_s) = waiting[0]
            if paced and arrival_s > now:
                break
            waiting.popleft()
            began[i] = [time.perf_counter(), None]
            engine.add_request(str(i), prompt, params)
        if not began:
            time.sleep(min(waiting[0][1][2] - now, 0.05))
            continue
        for told in engine.step():
            _note(told, began, answers)
    return {"answers": answers, "seconds": time.perf_counter() - start}


def _note(told, began, answers):
    i, now = int(told.request_id), time.perf_counter()
    output = told.outputs[0]
    if began[i][1] is None and output.token_ids:
        began[i][1] = now - began[i][0]
    if told.finished:
        started, ttft_s = began.pop(i)
        answers[i] = {
            "ttft_s": ttft_s,
            "e2e_s": now - started,
            "input_tokens": len(told.prompt_token_ids),
            "hit_tokens": told.num_cached_tokens or 0,
            "output": list(output.token_ids),
        }


def run_all(job, script, say=print):
    """Every arm and repeat in a process of its own, arms in turn: a list of results."""
    found = []
    for repeat in range(job["repeats"]):
        for number, arm in enumerate(job["arms"]):
            say(f"repeat {repeat + 1} of {job['repeats']}: {arm['name']}")
            one = {**job, "arms": [arm]}
            served = _in_process(one, script)
            found.append({"arm": number, "repeat": repeat, **served})
    return found


def _in_process(job, script):
    with tempfile.TemporaryDirectory() as folder:
        asked, told = os.path.join(folder, "job"), os.path.join(folder, "out")
        with open(asked, "w") as file:
            json.dump(job, file)
        environment = {k: v for k, v in os.environ.items() if k != "PERC_POLICY"}
        if job["arms"][0]["policy"] is not None:
            environment["PERC_POLICY"] = job["arms"][0]["policy"]
        done = subprocess.run(
            [sys.executable, script, asked, told],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:].strip())
        with open(told) as file:
            return json.load(file)


def main(words):
    """The two ways that stand at the head of this file."""
    with open(words[0]) as file:
        job = json.load(file)
    if words[1] == "--all":
        result = {"job": job, "results": run_all(job, os.path.abspath(__file__))}
    else:
        result = serve(job, job["arms"][0])
    with open(words[-1], "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1:])
