"""From a model, an accelerator and traffic to advice: what is measured decides."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perc.advice import Advice, Needs, advise
from perc.advice_notes import notes
from perc.advice_sizing import DISK_RATIO, HOST_RATIO, Sizing, size
from perc.advice_traffic import Sharing, Worth, sharing, worth
from perc.deployment import Deployment
from perc.errors import InputError
from perc.hardware import Accelerator, accelerator
from perc.models import ModelShape
from perc.types import Trace

AUTO = "auto"
LEFT = 0.02  # of prompt tokens, from which on a tier below the accelerator is advised
DEFAULT_CONTEXT = 8192
NO_CARD = ("none", "cpu")


@dataclass(frozen=True)
class Asked:
    """What a person says; None where a trace or a default decides."""

    model: str | None = None  # to serve, if it is a repository; else the shape's source
    users: int = 8
    context: int | None = None
    shared: float | None = None
    turns: float | None = None
    offload: str = AUTO
    host_gib: float | None = None
    disk_gib: float | None = None
    nodes: int = 1
    disaggregated: bool = False
    least_latency: bool = False
    priorities: bool = False
    ttft_s: float | None = None
    itl_s: float | None = None
    tp: int = 1
    kv: str = "fp16"
    engine: str | None = None


@dataclass(frozen=True)
class Recommendation:
    """Advice, and what it rests on; None where nothing was given to measure."""

    advice: Advice
    needs: Needs
    sizing: Sizing | None
    sharing: Sharing | None
    worth: Worth | None
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and words, for JSON."""
        return {
            "advice": self.advice.as_dict(),
            "needs": asdict(self.needs),
            "sizing": None if self.sizing is None else asdict(self.sizing),
            "sharing": None if self.sharing is None else self.sharing._asdict(),
            "worth": None if self.worth is None else self.worth._asdict(),
            "notes": list(self.notes),
        }


def recommend(
    gpu: str,
    asked: Asked | None = None,
    *,
    shape: ModelShape | None = None,
    trace: Trace | None = None,
) -> Recommendation:
    """Advice for an accelerator, with sizes if the model is known.

    Args:
        gpu: a name of `perc hardware`, or none.
        asked: what is wanted; None asks for nothing in particular.
        shape: the model; None leaves sizes and policies out.
        trace: traffic; what it says about sharing, turns and lengths decides.

    Raises:
        InputError: for an unknown name, a number that is not as it must be, a model
            that does not fit, or sharing and turns that are said and measured.

    Example:
        >>> recommend("none").advice.engine
        'llama.cpp'
    """
    asked = asked or Asked()
    card = None if gpu.strip().lower() in NO_CARD else accelerator(gpu)
    measured = None if trace is None else sharing(trace)
    if measured and not (asked.shared is None and asked.turns is None):
        raise InputError(
            "a trace and --shared or --turns: the trace says both; give one of them."
        )
    targets = asked.ttft_s is not None or asked.itl_s is not None
    if targets and (shape is None or card is None):
        raise InputError(
            "--ttft and --itl are judged by the cost model of a model on an "
            "accelerator: give --model, and a --gpu other than none."
        )
    context = _context(asked, measured)
    sizing = found = None
    if shape is not None and card is not None:
        at = Deployment(shape, card, tp=asked.tp, kv=asked.kv, context_tokens=context)
        sizing = size(at, users=asked.users, ttft_s=asked.ttft_s, itl_s=asked.itl_s)
        if trace is not None:
            found = worth(trace, sizing.blocks(trace.block_tokens))
    offload, tier = _offload(asked, sizing, found)
    host = _said(asked.host_gib, _host_gib(sizing, found))
    needs = Needs(
        model=_served(asked.model, shape),
        vendor=_vendor(card),
        users=asked.users,
        context=context,
        nodes=asked.nodes,
        disaggregated=asked.disaggregated,
        least_latency=asked.least_latency,
        priorities=asked.priorities,
        shared=measured.others if measured else _said(asked.shared, 0.0),
        turns=measured.turns if measured else _said(asked.turns, 1.0),
        offload=offload,
        tp=sizing.tp if sizing else asked.tp,
        kv=sizing.kv if sizing else asked.kv,
        policy=found.best if found else "unknown",
        host_gib=host,
        disk_gib=_said(asked.disk_gib, DISK_RATIO * host),
    )
    advice = advise(needs, engine=asked.engine)
    said = (
        *(sizing.notes if sizing else ()),
        *tier,
        *notes(asked, needs, advice, sized=sizing is not None),
    )
    return Recommendation(advice, needs, sizing, measured, found, said)


def _said(value: float | None, default: float) -> float:
    """What was said, 0 too: whether 0 will do is not for a default to hide."""
    return default if value is None else value


def _context(asked: Asked, measured: Sharing | None) -> int:
    if asked.context is not None:
        return asked.context
    return max(1, measured.context_p99) if measured else DEFAULT_CONTEXT


def _offload(
    asked: Asked, sizing: Sizing | None, found: Worth | None
) -> tuple[str, list[str]]:
    """The tier, and why it was chosen."""
    if asked.offload != AUTO:
        return asked.offload, []
    if sizing is None or found is None:
        return "none", [
            "No tier below the accelerator: nothing was measured. A trace with --model "
            "says whether one pays; --offload host sets one up."
        ]
    left = found.infinite - found.hits[found.best]
    if left < LEFT:
        return "none", [
            f"No tier below the accelerator: its {sizing.cache_gib:.3g} GiB hit "
            f"{found.hits[found.best]:.1%} of prompt tokens, and no size more than "
            f"{found.infinite:.1%}."
        ]
    if sizing.break_even_tokens is None:
        return "none", [
            f"No tier below the accelerator, although {left:.1%} of prompt tokens are "
            "left to hit: computing them is faster than loading them."
        ]
    sizes = ", ".join(
        f"{times * sizing.cache_gib:,.0f} GiB {hit:.1%}"
        for times, hit in found.larger.items()
    )
    return "host", [
        f"A tier below the accelerator: its {sizing.cache_gib:,.0f} GiB hit "
        f"{found.hits[found.best]:.1%} of prompt tokens, no size more than "
        f"{found.infinite:.1%}. LRU with more: {sizes}. `perc simulate --tier` says "
        "what that is worth in time."
    ]


def _host_gib(sizing: Sizing | None, found: Worth | None) -> float:
    """A multiple of the accelerators' cache: measured, else a rule of thumb."""
    if sizing is None:
        return Needs.host_gib
    times = found.enough if found else HOST_RATIO
    return max(1.0, float(round(times * sizing.cache_gib)))


def _served(said: str | None, shape: ModelShape | None) -> str:
    """What a server can load: a repository, or the folder of a configuration."""
    if shape is None:
        return Needs.model
    for name in (said, shape.name):
        if name is not None and "/" in name:
            return name
    if shape.source.endswith(".json"):
        return str(Path(shape.source).parent)
    return shape.source or shape.name


def _vendor(card: Accelerator | None) -> str:
    if card is None:
        return "none"
    if card.name.startswith("gaudi"):
        return "other"
    return "amd" if card.name.startswith("mi") else "nvidia"


def command_line(advice: Advice) -> str:
    """The command with its environment and flags, a line each.

    Settings of a configuration file, which hold a colon and no dash, are left out.

    Example:
        >>> print(command_line(advise(Needs(model="m", policy="perc"))))
        PERC_POLICY=perc \\
        vllm serve m \\
          --enable-prefix-caching \\
          --block-size 16
    """
    flags = [s.flags for s in advice.settings if s.flags.startswith("--")]
    lines = [s.environment for s in advice.settings if s.environment]
    lines.append(advice.command)
    lines += [f"  {flag}" for flag in flags if flag not in advice.command]
    return " \\\n".join(lines)
