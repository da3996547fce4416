"""What advice leaves unsaid: needs that chose nothing, and what a command assumes."""

from dataclasses import replace
from typing import TYPE_CHECKING

from perc.advice import Advice, Needs, advise

if TYPE_CHECKING:
    from perc.advice_report import Asked

MACHINE = 8  # accelerators that a server usually has


def notes(asked: "Asked", needs: Needs, advice: Advice, *, sized: bool) -> list[str]:
    """Sentences for a person who would else take the advice for more than it is.

    Args:
        asked: what the person said.
        needs: what came of it, of a trace and of sizes.
        advice: what the table says to the needs.
        sized: whether a model and an accelerator were there to size tiers by.

    Example:
        >>> from perc.advice_report import Asked
        >>> needs = Needs(nodes=2)
        >>> notes(Asked(nodes=2), needs, advise(needs), sized=False)
        ['--nodes 2 alone chooses no engine: Dynamo is taken with --disaggregated too.']
    """
    return [
        *_without_effect(needs, advice),
        *_engine(needs, advice),
        *_accelerators(asked, needs),
        *_tiers(asked, needs, advice, sized),
    ]


def _without_effect(needs: Needs, advice: Advice) -> list[str]:
    """Needs that no rule took up, though a rule names them."""
    found = []
    if needs.disaggregated and needs.nodes < 2 and advice.engine != "dynamo":
        found.append(
            "--disaggregated alone chooses no engine: Dynamo is taken with --nodes 2 "
            "or more."
        )
    if needs.nodes > 1 and not needs.disaggregated and advice.engine != "dynamo":
        found.append(
            f"--nodes {needs.nodes} alone chooses no engine: Dynamo is taken with "
            "--disaggregated too."
        )
    if needs.least_latency and needs.vendor != "nvidia":
        found.append(
            "--least-latency chooses no engine here: TensorRT-LLM, which is taken for "
            "it, runs on NVIDIA's accelerators only."
        )
    return found


def _engine(needs: Needs, advice: Advice) -> list[str]:
    """An engine that was asked for, on what it does not run on as it comes."""
    if advice.engine == "tensorrt-llm" and needs.vendor != "nvidia":
        return [
            f"{advice.title} runs on NVIDIA's accelerators only: this command will not "
            "start here."
        ]
    if advice.engine != "llama.cpp" and needs.vendor == "none":
        return [
            f"{advice.title} is made for accelerators: without one this command needs "
            "a build for CPUs, where there is one; llama.cpp needs nothing else."
        ]
    return []


def _accelerators(asked: "Asked", needs: Needs) -> list[str]:
    """How many were added, and whether one machine has as many."""
    found = []
    if needs.tp != asked.tp:
        found.append(
            f"{needs.tp} accelerators are the least that hold the model and a request "
            f"of {needs.context:,} tokens."
        )
    if needs.tp > MACHINE:
        found.append(
            f"{needs.tp} accelerators are more than the {MACHINE} that a machine "
            "usually has: across machines an engine must be started on each, which "
            "this command does not do."
        )
    return found


def _tiers(asked: "Asked", needs: Needs, advice: Advice, sized: bool) -> list[str]:
    """Sizes that were given and stand in no setting, or stand there as a guess."""
    found = []
    for flag, name, given in (
        ("--host-gib", "host_gib", asked.host_gib),
        ("--disk-gib", "disk_gib", asked.disk_gib),
    ):
        size = getattr(needs, name)
        # A setting that holds the size would be another one with another size.
        other = replace(needs, **{name: 2 * size + 1024})
        stands = advise(other, engine=asked.engine).settings != advice.settings
        if given is not None and not stands:
            found.append(
                f"{flag} {given:g} changes nothing: no setting of {advice.title} takes "
                f"it with --offload {needs.offload}."
            )
        if given is None and stands and not sized:
            found.append(
                f"{size:g} GiB are a guess, as nothing was given to size that tier by; "
                f"say it with {flag}, or give --model and a --gpu."
            )
    return found
