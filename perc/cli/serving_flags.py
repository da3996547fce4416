"""The flags of `perc simulate`: what serves, how it schedules, when requests come."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, UseAppendAction, arg

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
    """Requests that a step takes from the queue; static: as many as wait, once the last
    batch has ended."""
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
