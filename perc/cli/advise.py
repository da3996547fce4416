"""`perc advise`: which engine, with which settings, and why."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace

if TYPE_CHECKING:
    from perc.advice_report import Recommendation
    from perc.models import ModelShape


def advise(
    trace: Annotated[Positional[str | None], arg(metavar="TRACE")] = None,
    *,
    gpu: str,
    model: str | None = None,
    config: Annotated[Path | None, arg(metavar="CONFIG.JSON")] = None,
    users: int = 8,
    context: int | None = None,
    shared: Annotated[float | None, arg(metavar="SHARE")] = None,
    turns: float | None = None,
    ttft: Annotated[float | None, arg(metavar="SECONDS")] = None,
    itl: Annotated[float | None, arg(metavar="SECONDS")] = None,
    offload: str = "auto",
    host_gib: float | None = None,
    disk_gib: float | None = None,
    nodes: int = 1,
    disaggregated: FlagCreatePairsOff[bool] = False,
    least_latency: FlagCreatePairsOff[bool] = False,
    priorities: FlagCreatePairsOff[bool] = False,
    tp: int = 1,
    kv: str = "fp16",
    engine: str | None = None,
    json: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Choose an engine and its cache settings, with reasons and sources.

    Args:
        trace: traffic of yours; it then says what is shared, how many turns there
            are, how long requests get, and with --model which policy keeps most.
        gpu: an accelerator of `perc hardware`, or none.
        model: a name that `perc cost` knows, or a repository of such a model, which
            the command then serves; without one nothing is sized.
        config: a Hugging Face config.json instead of it, or its folder.
        users: requests at once.
        context: tokens of a request, prompt and answer; by default the trace's 99th
            percentile, or 8,192.
        shared: of the prompt tokens, beginnings that another conversation has sent.
        turns: requests of a conversation.
        ttft: most seconds to the first token.
        itl: most seconds between tokens.
        offload: lowest tier below the accelerator: none, host, disk or remote; auto
            takes the host's memory where the trace says that it pays.
        host_gib: of that tier.
        disk_gib: of that tier.
        nodes: machines.
        disaggregated: prefill and decode on different workers.
        least_latency: above all else.
        priorities: some requests matter more than others.
        tp: accelerators that hold the model together; more if they must.
        kv: format of the cache, as in `perc cost`.
        engine: settings of this one: vllm, sglang, tensorrt-llm, llama.cpp, dynamo.
        json: print one JSON object instead of text.
        loading: how to read the trace.

    Raises:
        InputError: for an unknown name, or a number that is not as it must be.
    """
    from perc.advice_report import Asked, recommend

    asked = Asked(
        model=model,
        users=users,
        context=context,
        shared=shared,
        turns=turns,
        offload=offload,
        host_gib=host_gib,
        disk_gib=disk_gib,
        nodes=nodes,
        disaggregated=disaggregated,
        least_latency=least_latency,
        priorities=priorities,
        ttft_s=ttft,
        itl_s=itl,
        tp=tp,
        kv=kv,
        engine=engine,
    )
    found = recommend(
        gpu,
        asked,
        shape=_shape(model, config),
        trace=None if trace is None else open_trace(trace, loading),
    )
    if json:
        print(json_module.dumps(found.as_dict(), allow_nan=False))
        return
    _print(found)


def _shape(model: str | None, config: Path | None) -> "ModelShape | None":
    if config is not None:
        from perc.models_config import read_config

        return read_config(config, name=model)
    if model is None:
        return None
    from perc.model_shapes import model as named

    return named(model)


def _print(found: "Recommendation") -> None:
    from perc.advice_report import command_line
    from perc.report.console import plain_console

    console = plain_console()

    def say(text: str = "", style: str | None = None) -> None:
        console.print(text, style=style, markup=False)

    advice = found.advice
    say(f"{advice.title}: {advice.reason.why}.", "bold")
    say(f"  {_source(advice.reason.fact)}", "dim")
    for line in _measured(found):
        say(line)
    for note in found.notes:
        say(note)
    say()
    print(command_line(advice))
    say()
    for setting in advice.settings:
        shown = " ".join(filter(None, (setting.environment, setting.flags)))
        say(f"{shown or 'eviction'}\n  {setting.why}")
        say(f"  {_source(setting.fact)}", "dim")
    say()
    say("Other engines:")
    for name, when in advice.others.items():
        say(f"  {name}: {when}")
    say(
        "Rules of thumb choose the engine; run two on your traffic before you commit.",
        "dim",
    )


def _source(fact) -> str:
    return f"[{fact.source}; looked up {fact.date}]"


def _measured(found: "Recommendation") -> list[str]:
    lines = []
    if found.sharing is not None:
        shares = found.sharing
        lines.append(
            f"Of the prompt tokens {shares.others:.1%} were sent before by another "
            f"conversation, {shares.own:.1%} by the same one; {shares.turns:.3g} "
            f"requests a conversation, {shares.context_p99:,} tokens at p99."
        )
    if found.sizing is not None:
        sizes = found.sizing
        lines.append(
            f"{sizes.tp} accelerator(s) hold {sizes.at_once} requests of "
            f"{found.needs.context:,} tokens ({sizes.kv} cache, "
            f"{sizes.cache_gib:.3g} GiB): {sizes.ttft_s:.3g} s to the first token of "
            f"one, {sizes.itl_s * 1e3:.3g} ms a token, by the cost model."
        )
    if found.worth is not None:
        hits = ", ".join(f"{name} {hit:.1%}" for name, hit in found.worth.hits.items())
        lines.append(f"Prompt tokens hit with {found.worth.blocks:,} blocks: {hits}.")
    return lines
