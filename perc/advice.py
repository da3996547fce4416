"""Which engine, and with which settings: a table looked up, every line with its source.

`advice_facts.json` holds the table: rules that choose an engine, the first that holds
wins; settings of every engine and when to give them; where each is from, and when that
was looked up. A condition names needs: true or false, a list of values, `min`, or
`other_than`. What a trace or a cost model says arrives here as needs.
"""

import json
import math
import shlex
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from perc.errors import InputError, check_number, check_whole
from perc.kv_memory import KV_FORMATS, kv_format

OFFLOADS = ("none", "host", "disk", "remote")
KINDS = ("none", "nvidia", "amd", "other")
GIB, MIB_PER_GIB = 2**30, 1024
MOST = 2**31 - 1


@dataclass(frozen=True)
class Needs:
    """What a deployment asks for."""

    model: str = "MODEL"  # repository or folder that a server loads
    vendor: str = "nvidia"  # of the accelerator, "none" without one
    users: int = 8  # requests at once
    context: int = 8192  # tokens of a request, prompt and answer
    nodes: int = 1  # machines
    disaggregated: bool = False  # prefill and decode on different workers
    least_latency: bool = False  # above all else
    priorities: bool = False  # some requests matter more
    shared: float = 0.0  # of prompt tokens, a beginning of another conversation
    turns: float = 1.0  # requests of a conversation
    offload: str = "none"  # lowest tier below the accelerator
    tp: int = 1  # accelerators that hold the model together
    kv: str = "fp16"  # format of the cache
    policy: str = "unknown"  # what keeps most, where it was measured
    host_gib: float = 16.0  # of that tier
    disk_gib: float = 64.0


class Fact(NamedTuple):
    """Where a line is from."""

    source: str
    date: str


class Reason(NamedTuple):
    """Why an engine was chosen."""

    why: str
    fact: Fact


class Setting(NamedTuple):
    """One thing to set; flags and environment may be empty."""

    flags: str
    environment: str
    why: str
    fact: Fact


@dataclass(frozen=True)
class Advice:
    """An engine and how to start it."""

    engine: str
    title: str
    command: str
    reason: Reason
    settings: tuple[Setting, ...]
    others: dict[str, str]  # engine: when it would be chosen

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and words, for JSON."""
        found = asdict(self)
        found["reason"] = {"why": self.reason.why, **self.reason.fact._asdict()}
        found["settings"] = [
            {
                "flags": setting.flags,
                "environment": setting.environment,
                "why": setting.why,
                **setting.fact._asdict(),
            }
            for setting in self.settings
        ]
        return found


def advise(needs: Needs, *, engine: str | None = None) -> Advice:
    """Looks the table up; the same needs get the same answer.

    Args:
        needs: what is asked for.
        engine: settings of this one, whatever the rules would choose.

    Raises:
        InputError: for a need that is not as it must be, an unknown engine, or a
            format of the cache that the engine cannot be set to.

    Example:
        >>> advise(Needs(vendor="none")).title
        'llama.cpp'
        >>> advise(Needs(shared=0.5)).title
        'SGLang'
    """
    _check(needs)
    table = facts()
    rule = next(row for row in table["choice"] if holds(row["when"], needs))
    chosen, why = rule["engine"], rule["why"]
    if engine is not None and engine not in table["engines"]:
        raise InputError(
            f"no engine is called {engine!r}. There are: {', '.join(table['engines'])}."
        )
    if engine is not None and engine != chosen:
        by_itself = table["engines"][chosen]["title"]
        chosen, why = engine, f"it was asked for; the rules take {by_itself}, as {why}"
    entry = table["engines"][chosen]
    if needs.kv not in kv_formats(chosen):
        raise InputError(
            f"the table has no setting of {entry['title']} for a cache in {needs.kv}; "
            f"take --kv {', '.join(kv_formats(chosen))}, or another --engine."
        )
    values = asdict(needs) | _derived(needs)
    settings = [
        Setting(
            row.get("set", "").format(**values),
            row.get("env", "").format(**values),
            row["why"],
            _fact(row["fact"]),
        )
        for row in entry["settings"]
        if holds(row["when"], needs)
    ]
    return Advice(
        engine=chosen,
        title=entry["title"],
        command=entry["command"].format(**values),
        reason=Reason(why, _fact(rule["fact"])),
        settings=tuple(settings),
        others={k: v for k, v in table["not_chosen"].items() if k != chosen},
    )


@cache
def facts() -> dict[str, Any]:
    """The table."""
    return json.loads(files("perc").joinpath("advice_facts.json").read_text("utf-8"))


def kv_formats(engine: str) -> tuple[str, ...]:
    """Formats of the cache that an engine can be set to; 16 bits need no setting.

    Example:
        >>> kv_formats("sglang")
        ('fp16', 'bf16', 'fp8')
    """
    rows = facts()["engines"][engine]["settings"]
    named = {kv for row in rows for kv in row["when"].get("kv", ())}
    return tuple(kv for kv in KV_FORMATS if kv in named or kv_format(kv).bits == 16)


def holds(condition: dict[str, Any], needs: Needs) -> bool:
    """Whether all of a condition is true of the needs; an empty one always is.

    Example:
        >>> holds({"turns": {"min": 2}, "kv": ["fp16", "fp8"]}, Needs(turns=3.0))
        True
    """
    return all(
        _true(wanted, getattr(needs, name)) for name, wanted in condition.items()
    )


def _true(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, list):
        return value in wanted
    if "min" in wanted:
        return value >= wanted["min"]
    return value not in wanted["other_than"]


def _derived(needs: Needs) -> dict[str, Any]:
    """Other units and names of the needs, for the settings."""
    name = Path(needs.model).name or Needs.model
    return {
        "model": shlex.quote(needs.model),
        "gguf": shlex.quote(f"{name}.gguf"),
        "ctx": needs.users * needs.context,
        "host_gib": f"{needs.host_gib:g}",
        "disk_gib": f"{needs.disk_gib:g}",
        "host_rank_gb": math.ceil(needs.host_gib * GIB / 1e9 / needs.tp),
        "host_mib": round(needs.host_gib * MIB_PER_GIB),
        "host_bytes": round(needs.host_gib * GIB),
        "disk_bytes": round(needs.disk_gib * GIB),
    }


def _fact(name: str) -> Fact:
    return Fact(**facts()["facts"][name])


def _check(needs: Needs) -> None:
    kv_format(needs.kv)
    for name in ("users", "context", "nodes", "tp"):
        check_whole("perc advise", name, getattr(needs, name), 1, MOST)
    for name in ("host_gib", "disk_gib"):
        check_number("perc advise", name, getattr(needs, name), above=True)
    check_number("perc advise", "shared", needs.shared, high=1.0)
    check_number("perc advise", "turns", needs.turns, low=1.0)
    if needs.offload not in OFFLOADS:
        raise InputError(
            f"no tier is called {needs.offload!r}. There are: {', '.join(OFFLOADS)}."
        )
    if needs.vendor not in KINDS:
        raise InputError(
            f"no vendor is called {needs.vendor!r}. There are: {', '.join(KINDS)}."
        )
