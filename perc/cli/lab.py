"""`perc lab`: documents through a small GPU cache and host memory, by hand's size."""

import json as json_module
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from perc.cli.unused import changed, refuse
from perc.errors import InputError
from perc.lab.scenario import DOCS, GPU, PASSES, TOKENS, Scenario

Experiment = Literal["scenario", "cliff", "cpu-cliff", "summarize"]
SECONDS = ("--model", "--card", "--host-link")
MODEL = "give --model as well, such as qwen2.5-1.5b"
IDLE = {  # flags that change nothing, by experiment; None = all
    "scenario": ("--scan",),
    "cliff": ("--gpu", "--block", *SECONDS),
    "cpu-cliff": ("--cpu", "--block", *SECONDS),
    "summarize": None,
}


def lab(
    experiment: Annotated[Positional[Experiment], arg(metavar="WHAT")] = "scenario",
    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="[IN OUT]")] = (),
    *,
    gpu: Annotated[int, arg(metavar="TOKENS")] = GPU,
    cpu: Annotated[int, arg(metavar="TOKENS")] = 0,
    docs: int = DOCS,
    tokens: int = TOKENS,
    passes: Annotated[str, arg(metavar="ORDERS")] = ",".join(PASSES),
    exclusive: FlagCreatePairsOff[bool] = False,
    policy: str = "lru",
    block: Annotated[int | None, arg(metavar="TOKENS")] = None,
    scan: Annotated[str | None, arg(metavar="TOKENS")] = None,
    model: Annotated[str | None, arg(metavar="NAME")] = None,
    card: Annotated[str | None, arg(metavar="NAME")] = None,
    host_link: Annotated[str | None, arg(metavar="LINK")] = None,
) -> None:
    """Read documents in passes through a GPU's cache and host memory; prints JSON.

    Args:
        experiment: scenario: hits of each pass; cliff, cpu-cliff: hits and misses of
            the second pass by capacity of the GPU or the host; summarize: measured
            times of first tokens, of a file of JSON lines into a file.
        files: of summarize.
        gpu: capacity of the GPU's cache.
        cpu: capacity of the host's memory.
        docs: how many documents.
        tokens: of each.
        passes: fwd and rev, through one cache.
        exclusive: the host holds what the GPU dropped, instead of a copy of all.
        policy: of both tiers: lru, fifo, mru, belady or belady-bypass.
        block: read documents in blocks, so that the head of one counts (lru).
        scan: capacities of a cliff, such as 30065,30066.
        model: tell seconds too, of this model, such as qwen2.5-1.5b.
        card: the accelerator that they are of; a100 by default.
        host_link: between the two tiers; by default the card's.

    Raises:
        InputError: if a word, a number or a file is not as it must be, or a flag would
            change nothing.
    """
    from perc.files import write_atomically
    from perc.lab.scenario import CPU_SCAN, GPU_SCAN, cliff, cpu_cliff
    from perc.lab.summarize import summarize_file

    given = {"gpu": gpu, "cpu": cpu, "docs": docs, "tokens": tokens, "passes": passes}
    given |= {"exclusive": exclusive, "policy": policy, "block": block, "scan": scan}
    given |= {"model": model, "card": card, "host_link": host_link}
    typed = changed(lab, given)
    refuse(typed, f"perc lab {experiment}", idle=IDLE[experiment])
    if model is None:
        refuse(typed, "a lab without seconds", idle=SECONDS[1:], remedy=MODEL)
    if not cpu and experiment != "cpu-cliff":
        below = ("--exclusive", "--host-link")
        refuse(typed, "a lab without host memory", idle=below, remedy="give --cpu too")
    if experiment == "summarize":
        source, target = _two(files)
        found = summarize_file(source)
        text = json_module.dumps(found, indent=2) + "\n"
        write_atomically(target, lambda path: path.write_text(text))
    elif files:
        raise InputError(f"perc lab {experiment} reads no file: {files[0]}.")
    else:
        at = Scenario(
            gpu, cpu, docs, tokens, tuple(passes.split(",")), exclusive, policy
        )
        if experiment == "cliff":
            found = cliff(at, _scan(scan, GPU_SCAN))
        elif experiment == "cpu-cliff":
            found = cpu_cliff(at, _scan(scan, CPU_SCAN))
        else:
            found = _passes(at, block, model, card, host_link)
    print(json_module.dumps(found, allow_nan=False))


def _passes(at: Scenario, block, model, card, host_link) -> dict:
    """The passes, as whole documents or in blocks, with seconds if asked for."""
    from perc.lab.partial import as_dict, play_blocks
    from perc.lab.scenario import play
    from perc.lab.seconds import clock, seconds_of, whole_reads

    if block is None:
        played, _ = play(at)
        found = [one.as_dict() for one in played]
        reads = [whole_reads(one, at) for one in played]
    else:
        reads = play_blocks(at, block)
        found = [
            as_dict(one, order, at) for order, one in zip(at.passes, reads, strict=True)
        ]
    if model is not None:
        from perc.hardware import accelerator
        from perc.model_shapes import model as shape

        timed = clock(shape(model), accelerator(card or "a100"), host_link)
        for row, one in zip(found, reads, strict=True):
            row["ttft_s"] = seconds_of(one, at, timed)
    return {"passes": found}


def _two(files: tuple[Path, ...]) -> tuple[Path, Path]:
    if len(files) != 2:
        raise InputError("perc lab summarize takes two files: INPUT.jsonl OUTPUT.json.")
    return files[0], files[1]


def _scan(text: str | None, usual: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return usual if text is None else tuple(int(word) for word in text.split(","))
    except ValueError:
        raise InputError(
            f"--scan {text}: give whole numbers, such as 30065,30066."
        ) from None
