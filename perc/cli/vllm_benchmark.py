"""`perc vllm-benchmark`, `perc render-job`: the same requests in real engines."""

import json as json_module
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Trial:
    """What is served, and by what."""

    models: str = ""
    """Comma list of models that vLLM can load."""
    policies: str = "stock,perc"
    """Comma list; stock leaves vLLM as it is, lru and others are perc's."""
    prompts: str | None = None
    """In place of a trace: JSONL, CSV or parquet with a column prompt, or hf:NAME of a
    Hugging Face data set."""
    limit: int = 200
    """Requests, the first ones."""
    answer_tokens: int = 16
    """Generated for a request at most."""
    at_once: int = 8
    """Requests in the engine at a time."""
    speed: float | None = None
    """Keep the trace's times, divided by this; else the next comes when one ends."""
    repeats: int = 3
    """Engines that each arm gets, one after the other."""
    options: str = "{}"
    """Keyword arguments of vLLM's LLM, as JSON: {"num_gpu_blocks_override": 2000}."""


TRIAL, AS_STOCK = Trial(), Trial(policies="stock")
TRACE = arg(metavar="[TRACE]")


def vllm_benchmark(
    trace: Annotated[Positional[str | None], TRACE] = None,
    *,
    trial: OmitArgPrefixes[Trial] = TRIAL,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Serve the same requests by real vLLM engines, with and without a policy of perc.

    Needs vLLM beside perc. Several models compare models. Prompts of a trace are random
    tokens, equal where its blocks are equal.

    Args:
        trace: file of the trace.
        trial: what is served, and by what.
        json: print one JSON object instead of the table.
        out: for run.json and results.parquet, a row an engine.
        loading: how to read the trace.

    Raises:
        InputError: if a flag is not as it must be, or vLLM is not installed or fails.
    """
    from importlib.util import find_spec

    from perc.bridges import vllm_trial
    from perc.files import check_writable
    from perc.report.trial_tables import trials

    began = time.perf_counter()
    job = _job(trace, trial, loading)
    if out is not None:
        check_writable(out)
    if find_spec("vllm") is None:
        raise InputError(
            "vLLM is not installed beside perc. Install it, or make a script for a "
            "machine that has it: perc render-job ... --script job.py"
        )

    def say(words: str) -> None:
        print(words, file=sys.stderr)

    try:
        results = vllm_trial.run_all(job, vllm_trial.__file__, say)
    except RuntimeError as error:
        raise InputError(f"vLLM failed. The end of what it said:\n{error}") from None
    _show(job, trials(job, results), as_json=json, out=out)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def compare_models(
    trace: Annotated[Positional[str | None], TRACE] = None,
    *,
    trial: OmitArgPrefixes[Trial] = AS_STOCK,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Serve the same requests by several models: the first is what others are held to.

    As perc vllm-benchmark with one engine a model, vLLM as it is.

    Args:
        trace: file of the trace.
        trial: what is served, and by what; --models takes two or more.
        json: print one JSON object instead of the table.
        out: for run.json and results.parquet, a row an engine.
        loading: how to read the trace.

    Raises:
        InputError: as perc vllm-benchmark.
    """
    if "," not in trial.models:
        raise InputError("Name two models or more: --models BASELINE,CANDIDATE.")
    vllm_benchmark(trace, trial=trial, json=json, out=out, loading=loading)


def render_job(
    trace: Annotated[Positional[str | None], TRACE] = None,
    *,
    script: Annotated[Path, arg(metavar="FILE.py")],
    trial: OmitArgPrefixes[Trial] = TRIAL,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Write one Python file that runs `perc vllm-benchmark` on another machine.

    It holds the requests and needs vLLM there, and perc where a policy is perc's. It
    writes one JSON file, which `perc show-job` reads.

    Args:
        trace: file of the trace.
        script: the file.
        trial: what is served, and by what.
        loading: how to read the trace.

    Raises:
        InputError: if a flag is not as it must be, or the file cannot be written.
    """
    from perc.bridges.vllm_jobs import render
    from perc.files import check_writable, write_atomically

    if script.is_dir() or script.suffix != ".py":
        raise InputError(f"--script {script}: name a file that ends in .py.")
    check_writable(script.parent)
    text = render(_job(trace, trial, loading), script)
    write_atomically(script, lambda temporary: temporary.write_text(text))
    told = script.with_suffix(".json").name
    print(f"wrote {script}; there: python {shlex.quote(script.name)} {told}")
    print(f"then here: perc show-job {told}")


def show_job(
    result: Annotated[Positional[Path], arg(metavar="FILE.json")],
    *,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
) -> None:
    """Show what a script of `perc render-job` found.

    Args:
        result: the JSON file that it wrote.
        json: print one JSON object instead of the table.
        out: for run.json and results.parquet.

    Raises:
        InputError: if the file is none of such a script.
    """
    job, table = _found(result)
    _show(job, table, as_json=json, out=out)


def _found(result: Path) -> "tuple[dict[str, Any], pl.DataFrame]":
    """The job of a file of results, and its table; all that is shown of them is there.

    Raises:
        InputError: if the file is none of such a script.
    """
    import numpy as np
    import polars as pl

    from perc.report.trial_tables import sentences, trials, trials_table

    wrong = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        found = json_module.loads(result.read_text(encoding="utf-8"))
        job = found["job"]
        with np.errstate(invalid="raise", over="raise"):
            table = trials(job, found["results"])
            sentences(table)
            trials_table(table)
        if type(job["requests"]) is not list or type(job["repeats"]) is not int:
            raise TypeError("job.requests is no list, or job.repeats no whole number")
    except OSError as error:
        raise InputError(f"{result}: {error.strerror}; check the path.") from None
    except (*wrong, RecursionError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{result}: not what a script of perc render-job writes "
            f"({type(error).__name__}: {error})."
        ) from None
    return job, table


def _job(trace: str | None, trial: Trial, loading: Loading) -> dict[str, Any]:
    from perc.bridges.vllm_jobs import STOCK, arms_of, requests_of_trace
    from perc.cli.policies import parse_policies

    if (trace is None) == (trial.prompts is None):
        raise InputError("Give a trace, or --prompts FILE, and not both.")
    if not trial.models:
        raise InputError("Name a model that vLLM can load: --models PATH_OR_NAME.")
    for name in ("limit", "answer_tokens", "at_once", "repeats"):
        if getattr(trial, name) < 1:
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {getattr(trial, name)}: must be 1 or more.")
    if trial.speed is not None and not 0 < trial.speed < float("inf"):
        raise InputError(f"--speed {trial.speed}: must be more than 0.")
    policies = trial.policies.split(",")
    for policy in policies:
        if policy != STOCK:
            parse_policies(policy)
    try:
        options = json_module.loads(trial.options)
    except ValueError as error:
        raise InputError(f"--options {trial.options}: no JSON ({error}).") from None
    if not isinstance(options, dict):
        raise InputError(f"--options {trial.options}: must be one JSON object.")
    if trace is not None:
        requests = requests_of_trace(
            open_trace(trace, loading),
            limit=trial.limit,
            answer_tokens=trial.answer_tokens,
            speed=trial.speed or 1.0,
        )
    else:
        requests = _of_prompts(trial)
    return {
        "arms": arms_of(trial.models.split(","), policies),
        "repeats": trial.repeats,
        "options": options,
        "at_once": trial.at_once,
        "paced": trial.speed is not None,
        "requests": requests,
    }


def _of_prompts(trial: Trial) -> list[dict[str, Any]]:
    from perc.bridges.vllm_jobs import prompts_of, requests_of_prompts
    from perc.prefix_text import read_prompts
    from perc.profile_hub import read_hub

    assert trial.prompts is not None
    hub, name = trial.prompts.startswith("hf:"), trial.prompts.removeprefix("hf:")
    if hub:
        texts, given = prompts_of(read_hub(name, limit=trial.limit)), None
    else:
        read = read_prompts(name)
        texts, given = read.prompt, read.arrival_s
    texts = texts[: trial.limit]
    arrivals = [float(i) for i in range(len(texts))] if given is None else given
    pace = trial.speed or 1.0
    return requests_of_prompts(
        texts,
        [(at - arrivals[0]) / pace for at in arrivals[: len(texts)]],
        answer_tokens=trial.answer_tokens,
    )


def _show(
    job: dict[str, Any], table: "pl.DataFrame", *, as_json: bool, out: Path | None
) -> None:
    from perc.files import check_writable, write_atomically
    from perc.report.console import plain_console
    from perc.report.trial_tables import sentences, trials_table

    said = sentences(table)
    about = {k: v for k, v in job.items() if k != "requests"}
    about |= {"command": ["perc", *sys.argv[1:]], "verdict": said}
    if out is not None:
        check_writable(out)
        text = json_module.dumps(about, indent=2) + "\n"
        write_atomically(out / "results.parquet", table.write_parquet)
        write_atomically(out / "run.json", lambda path: path.write_text(text))
    if as_json:
        print(json_module.dumps(about | {"rows": table.to_dicts()}))
        return
    console = plain_console(highlight=True)
    console.print(trials_table(table))
    for sentence in said:
        console.print(sentence, markup=False, highlight=False)
    console.print(
        f"{len(job['requests']):,} requests, {job['repeats']} engines each, answers "
        "greedy; ±: half the 95 % interval over engines.",
        highlight=False,
    )
