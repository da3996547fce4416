"""`perc simulate`: a trace through a server in simulated time, policy by policy."""

import json as json_module
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import (
    FlagCreatePairsOff,
    OmitArgPrefixes,
    Positional,
    UseAppendAction,
    arg,
)

from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.errors import InputError, check_whole

if TYPE_CHECKING:
    from perc.roofline import Roofline
    from perc.serving.offload import Offload
    from perc.serving.settings import Retention, Server
    from perc.types import AnyPolicy, Trace

INFINITE = float("inf")
SPIKE_MULTIPLIER = 4.0


@dataclass(frozen=True)
class Machine:
    """What serves."""

    model: str = "llama-3.1-8b"
    """Its name; `perc cost` knows the same."""
    gpu: str = "h100"
    """An accelerator; `perc hardware` lists them."""
    tp: int = 1
    """Accelerators that share the model."""
    kv: str = "fp16"
    """Format of the cache."""
    blocks: Annotated[int | None, arg(metavar="INT")] = None
    """Blocks of the KV cache; by default what the memory leaves."""
    mfu: float = 0.5
    """Share of the dense peak that is reached."""
    mbu: float = 0.8
    """Share of the memory bandwidth that is reached."""
    overhead: Annotated[float, arg(metavar="SECONDS")] = 0.0
    """Of every step."""


@dataclass(frozen=True)
class Scheduling:
    """How it schedules."""

    order: Literal["fcfs", "priority", "deadline", "program"] = "fcfs"
    """Of the queue; program: follow-ups first."""
    batching: Literal["max_throughput", "low_latency", "adaptive", "static"] = (
        "max_throughput"
    )
    """Requests that a step takes from the queue; static: none while others run."""
    token_budget: int = 8192
    """Tokens of a step."""
    max_running: int = 256
    """Requests at once."""
    max_queue: Annotated[int | None, arg(metavar="INT")] = None
    """What arrives at a queue of so many is rejected."""
    whole_prompts: FlagCreatePairsOff[bool] = False
    """No chunked prefill."""
    cache_outputs: FlagCreatePairsOff[bool] = False
    """Keep the blocks of answers that a later turn names."""


@dataclass(frozen=True)
class Arrivals:
    """When requests come."""

    load: Annotated[str, arg(metavar="LOADS")] = "1"
    """How many times as fast as recorded: 0.5,1,2."""
    poisson: Annotated[float | None, arg(metavar="PER_S")] = None
    """At random, at this rate, in place of the recorded times."""
    spike: Annotated[int | None, arg(metavar="REQUEST")] = None
    """From this request on, faster."""
    spike_multiplier: float = SPIKE_MULTIPLIER
    """So many times."""
    closed_loop: FlagCreatePairsOff[bool] = False
    """A turn starts when the one before has ended, and the recorded gap."""
    seed: int = 0
    """Of random times and of the intervals' draws."""


@dataclass(frozen=True)
class Tiers:
    """Memory below the GPU."""

    tier: UseAppendAction[tuple[str, ...]] = ()
    """name:size:link, and a format if not the GPU's: cpu:64GiB:pcie5,
    disk:2TiB:nvme4:int4. Give it again for the next slower one."""
    tier_placement: Literal["inclusive", "exclusive"] = "inclusive"
    """What is loaded leaves a copy, or not."""
    tier_write: Literal["back", "through"] = "back"
    """When the GPU drops a block, or as soon as it is computed."""
    tier_store: Literal["all", "likely"] = "all"
    """likely: what is expected to save more than writing takes."""
    tier_load: Literal["reload", "recompute", "cheapest"] = "reload"
    """cheapest: whichever is quicker at the time."""
    tier_prefetch: FlagCreatePairsOff[bool] = False
    """Move what is needed to the first tier while a request queues."""


@dataclass(frozen=True)
class Retaining:
    """Shields for the prefixes of turns that have a next one."""

    retain: FlagCreatePairsOff[bool] = False
    """For as long as the gaps seen so far make it worth; needs --closed-loop."""
    retain_threshold: Annotated[int | None, arg(metavar="GAPS")] = None
    """Believe more gaps than that, of a kind of request or of all; 100 by default."""
    retain_default: Annotated[float | None, arg(metavar="SECONDS")] = None
    """Until so many are known; 0 by default."""
    retain_most: Annotated[float | None, arg(metavar="SECONDS")] = None
    """No shield is longer."""


@dataclass(frozen=True)
class Levels:
    """What counts as good, in seconds."""

    slo_ttft: float = INFINITE
    slo_tpot: float = INFINITE
    slo_e2e: float = INFINITE


MACHINE, SCHEDULING, ARRIVALS, LEVELS = Machine(), Scheduling(), Arrivals(), Levels()
TIERS, RETAINING = Tiers(), Retaining()


def simulate(
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    *,
    policies: Annotated[str, arg(metavar="NAMES")] = "lru,perc_decay",
    price: Annotated[float | None, arg(metavar="HITS")] = None,
    machine: OmitArgPrefixes[Machine] = MACHINE,
    scheduling: OmitArgPrefixes[Scheduling] = SCHEDULING,
    arrivals: OmitArgPrefixes[Arrivals] = ARRIVALS,
    tiers: OmitArgPrefixes[Tiers] = TIERS,
    retaining: OmitArgPrefixes[Retaining] = RETAINING,
    levels: OmitArgPrefixes[Levels] = LEVELS,
    by: Literal["kind", "priority", "turn", "session"] | None = None,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FOLDER")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Serve a trace in simulated time: TTFT, TPOT, goodput, recompute seconds.

    Args:
        trace: file of the trace.
        policies: comma list of policies that score a use or price idle blocks, such as
            lru,perc,workload_aware,perc_decay:tau_s=60, and policy files (x.npz).
        price: serve learned policies as fixed leases, asked at this price in hits per
            block and second; the dearer, the smaller the cache.
        machine: what serves.
        scheduling: how it schedules.
        arrivals: when requests come.
        tiers: memory below the GPU.
        retaining: shields for the prefixes of turns that have a next one.
        levels: what counts as good.
        by: tell TTFT of each class of requests, or tenant, too.
        json: print one JSON object instead of the table.
        out: for run.json, results, requests and series as parquet, and a chart.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc.cli.policies import parse_policies
    from perc.cli.progress import progress_bar
    from perc.files import check_writable
    from perc.report.run_folder import provenance
    from perc.report.serving_tables import flat, sentences, write_folder
    from perc.serving.metrics import Limits

    began = time.perf_counter()
    chosen = [_in_order(policy, price) for policy in parse_policies(policies)]
    loads = _loads(arrivals.load)
    _check_arrivals(arrivals)
    limits = Limits(levels.slo_ttft, levels.slo_tpot, levels.slo_e2e)
    if out is not None:
        check_writable(out)
    traffic = open_trace(trace, loading)
    cost, server = _server(traffic, machine, scheduling, arrivals, tiers, retaining)
    with progress_bar("serving") as progress:
        runs = _runs(
            traffic, chosen, loads, arrivals, server, cost, limits, by, progress
        )
    about = {
        **provenance(traffic, ["perc", *sys.argv[1:]]),
        "trace": traffic.source,
        "requests": traffic.n_requests,
        "machine": asdict(machine),
        "server": asdict(server),
        "arrivals": asdict(arrivals),
        "limits": {k: v for k, v in asdict(limits).items() if v < INFINITE},
        "notes": sentences(runs, limits),
    }
    if out is not None:
        written = write_folder(out, runs, about)
        print(f"wrote {', '.join(map(str, written))}", file=sys.stderr)
    if json:
        found = about | {"runs": [flat(run) for run in runs]}
        print(json_module.dumps(found, allow_nan=False))
    else:
        _print(runs, server, machine, limits, by)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _in_order(policy: "AnyPolicy", price: float | None) -> "AnyPolicy":
    """The policy as the simulator can follow it: a learned one at a price as leases."""
    from dataclasses import replace

    from perc.policies.learned import network_of
    from perc.policies.learned_key import lease_key
    from perc.serving.simulate import check_policy

    network = network_of(policy)
    if price is not None and network is not None:
        return replace(lease_key(network, price), name=policy.name)
    check_policy(policy)
    return policy


def _loads(text: str) -> list[float]:
    found = []
    for word in text.split(","):
        try:
            found.append(float(word))
        except ValueError:
            raise InputError(
                f"--load {text}: {word!r} is no number; give such as 0.5,1,2."
            ) from None
    return found


def _server(
    trace: "Trace",
    machine: Machine,
    scheduling: Scheduling,
    arrivals: Arrivals,
    tiers: Tiers,
    retaining: Retaining,
) -> "tuple[Roofline, Server]":
    from perc.hardware import accelerator
    from perc.kv_memory import (
        activation_bytes,
        block_bytes,
        kv_budget_bytes,
        weight_bytes,
    )
    from perc.model_shapes import model
    from perc.roofline import Efficiency, roofline
    from perc.serving.settings import Server

    shape, card = model(machine.model), accelerator(machine.gpu)
    reached = Efficiency(machine.mfu, machine.mbu, machine.overhead)
    cost = roofline(shape, card, tp=machine.tp, kv=machine.kv, efficiency=reached)
    blocks = machine.blocks
    if blocks is None:
        budget = kv_budget_bytes(
            card.memory_bytes,
            weight_bytes(shape, None, machine.tp),
            activations=activation_bytes(shape, scheduling.token_budget, machine.tp),
        )
        each = block_bytes(shape, trace.block_tokens, machine.kv, machine.tp)
        blocks = int(float(budget) // each)
        if not blocks:
            raise InputError(
                f"{machine.model} on {machine.tp} x {card.name} leaves no room for a "
                f"block of {trace.block_tokens} tokens; give a larger --tp or --gpu."
            )
    return cost, Server(
        blocks,
        token_budget=scheduling.token_budget,
        max_running=scheduling.max_running,
        max_queue=scheduling.max_queue,
        order=scheduling.order,
        batching=scheduling.batching,
        chunked=not scheduling.whole_prompts,
        closed_loop=arrivals.closed_loop,
        cache_outputs=scheduling.cache_outputs,
        offload=_offload(trace, machine, tiers),
        retention=_retention(retaining),
    )


def _retention(given: Retaining) -> "Retention | None":
    from perc.serving.settings import Retention

    values = (given.retain_threshold, given.retain_default, given.retain_most)
    if not given.retain:
        if values != (None, None, None):
            raise InputError("--retain-... without --retain changes nothing; add it.")
        return None
    threshold, default_s, most_s = values
    return Retention(
        threshold=100 if threshold is None else threshold,
        default_ttl_s=0.0 if default_s is None else default_s,
        most_s=most_s,
    )


def _offload(trace: "Trace", machine: Machine, tiers: Tiers) -> "Offload | None":
    from perc.hardware import accelerator, link
    from perc.model_shapes import model
    from perc.serving.offload import Offload, lower_tier, parse_tier

    if not tiers.tier:
        if tiers != TIERS:
            raise InputError("--tier-... without --tier changes nothing; add one.")
        return None
    memory = accelerator(machine.gpu).bytes_per_s * machine.mbu
    named = [parse_tier(text) for text in tiers.tier]
    names = ["gpu", *(one.name.lower() for one in named)]
    for one in named:
        if names.count(one.name.lower()) > 1:
            raise InputError(
                f"--tier {one.name}: the GPU or another tier is called so; give each a "
                "name of its own."
            )
    return Offload(
        tuple(
            lower_tier(
                one.name,
                one.size_bytes,
                link(one.way),
                model(machine.model),
                trace.block_tokens,
                gpu_kv=machine.kv,
                kv=one.kv,
                tp=machine.tp,
                memory_bytes_per_s=memory,
            )
            for one in named
        ),
        placement=tiers.tier_placement,
        write=tiers.tier_write,
        store=tiers.tier_store,
        load=tiers.tier_load,
        prefetch=tiers.tier_prefetch,
    )


def _runs(traffic, chosen, loads, arrivals, server, cost, limits, by, progress) -> list:
    """Every policy at every load."""
    from perc.report.serving_tables import Run
    from perc.serving.laws import check_laws
    from perc.serving.metrics import by_group, intervals, summary
    from perc.serving.simulate import simulate as serve

    runs = []
    for load in loads:
        trace = _arriving(traffic, arrivals, load)
        for policy in chosen:
            if progress:
                total = len(loads) * len(chosen)
                progress(len(runs), total, f"{policy.name} at {load:g}")
            served = serve(trace, policy, server, cost)
            check_laws(served)
            figures = summary(trace, served, cost, limits)
            sure = intervals(trace, served, cost, limits, seed=arrivals.seed)
            groups = by_group(trace, served, by) if by else {}
            runs.append(Run(load, policy.name, figures, sure, served, groups))
    return runs


def _check_arrivals(arrivals: Arrivals) -> None:
    check_whole("simulate", "--seed", arrivals.seed, 0, 2**32 - 1)
    if arrivals.spike is None and arrivals.spike_multiplier != SPIKE_MULTIPLIER:
        raise InputError("--spike-multiplier without --spike changes nothing; add it.")


def _arriving(trace: "Trace", arrivals: Arrivals, load: float) -> "Trace":
    from perc.serving.arrivals import poisson, scaled, spike

    if arrivals.poisson is not None:
        trace = poisson(trace, arrivals.poisson, seed=arrivals.seed)
    trace = scaled(trace, load)
    if arrivals.spike is not None:
        trace = spike(trace, arrivals.spike, multiplier=arrivals.spike_multiplier)
    return trace


def _print(runs, server: "Server", machine: Machine, limits, by) -> None:
    from rich.console import Console

    from perc.report.serving_tables import groups_table, runs_table, sentences
    from perc.report.tier_tables import tier_sentences, tiers_table

    console = Console(highlight=False, markup=False)
    console.print(
        f"{machine.model} on {machine.tp} x {machine.gpu}: "
        f"{server.capacity_blocks:,} blocks of KV cache, {server.token_budget:,} "
        f"tokens a step, {server.order}, {server.batching}",
        markup=False,
    )
    console.print(runs_table(runs))
    if by:
        console.print(groups_table(runs, by))
    if server.offload is not None and server.offload.used:
        console.print(tiers_table(runs))
        for sentence in tier_sentences(runs):
            console.print(sentence, markup=False)
    for sentence in [*_shield_sentences(runs), *sentences(runs, limits)]:
        console.print(sentence, markup=False)
    console.print(
        "Simulated: costs of a roofline, not of a measured server. ±: half the 95 % "
        "bootstrap interval over sessions. recompute: prefill of what was computed "
        "before.",
        style="dim",
        markup=False,
    )


def _shield_sentences(runs) -> list[str]:
    """What retention did, a sentence a run."""
    said = []
    for run in runs:
        kept = run.served.retained
        if kept is not None:
            said.append(
                f"{run.policy} at load {run.load:g}: {kept.shields:,} turns left a "
                f"shield; {kept.in_time:,} next turns found one, {kept.late:,} did "
                f"not; {kept.expired:,} expired, {kept.released:,} were broken for "
                "room."
            )
    return said
