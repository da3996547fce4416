"""`perc explain`: what a learned policy goes by, and where it wins and loses."""

import json as json_module
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.errors import InputError
from perc.explanation import PICTURES
from perc.files import check_writable, write_atomically

if TYPE_CHECKING:
    from perc.explanation import Explanation
    from perc.policies.store import Header
    from perc.types import AnyPolicy, Trace


def explain(
    policy: Annotated[Positional[str], arg(metavar="POLICY.npz")],
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    *,
    capacity: Annotated[str, arg(metavar="SIZE")] = "5%",
    warmup: float = 0.0,
    seed: int = 0,
    top: int = 6,
    repeats: int = 5,
    json: FlagCreatePairsOff[bool] = False,
    out: Annotated[Path | None, arg(metavar="FILE")] = None,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Explain a learned policy on a trace: what it goes by, where it wins and loses.

    Args:
        policy: file of a policy that perc train wrote.
        trace: file of the trace.
        capacity: cache size in blocks (4096) or as a share of the distinct blocks
            (0.05 or 5%).
        warmup: first share of the requests that only fills the cache, such as 0.5.
        seed: of the shuffles and draws.
        top: inputs, the most important ones, to show the worth over.
        repeats: shuffles of each input.
        json: print one JSON object instead of the tables.
        out: for the charts; ends in .html, .png or .svg.
        loading: how to read the trace.

    Raises:
        InputError: if the policy, the trace or a flag is not as it must be.
    """
    from perc.capacities import parse_capacities
    from perc.cli.progress import progress_bar
    from perc.train.explain import explain as run

    began = time.perf_counter()
    learned, header = _load(policy)
    sizes = parse_capacities(capacity)
    if len(sizes) != 1:
        raise InputError(f"--capacity {capacity}: give one; an explanation is of one.")
    if out is not None:
        _check(out)
    traffic = open_trace(trace, loading)
    with progress_bar("shuffling") as progress:
        found = run(
            learned,
            traffic,
            sizes[0],
            warmup=warmup,
            seed=seed,
            top=top,
            repeats=repeats,
            progress=progress,
        )
    if seen := seen_in_training(header, traffic):
        print(f"note: {_seen_note(seen, traffic, warmup)}", file=sys.stderr)
    if out is not None:
        from perc.report.explain_chart import writer

        print(f"wrote {write_atomically(out, writer(found, out))}", file=sys.stderr)
    if json:
        print(json_module.dumps(found.as_dict(), allow_nan=False))
    else:
        _print(found)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _load(path: str) -> tuple["AnyPolicy", "Header"]:
    """The learned policy of a file, and what the file says of it."""
    from perc.policies.learned import network_of
    from perc.policies.registry import registry
    from perc.policies.store import describe, load

    if path.partition(":")[0] in registry:
        raise InputError(
            f"{path} is a policy of the registry: only learned ones can be explained. "
            "Give a file that perc train wrote; docs/policies.md explains the others."
        )
    policy = load(path)
    if network_of(policy) is None:
        raise InputError(
            f"{path}: holds {policy.name}, which was not learned: only learned "
            "policies can be explained. Give a file that perc train wrote."
        )
    return policy, describe(path)


def _check(out: Path) -> None:
    if out.suffix not in PICTURES:
        raise InputError(
            f"--out {out}: the name must end in one of {', '.join(PICTURES)}."
        )
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; name a file in it.")
    check_writable(out.parent)


def seen_in_training(header: "Header", trace: "Trace") -> int:
    """How many requests at the trace's start the policy was trained on, if it was."""
    from perc.traces.hashing import hash_of
    from perc.tune_search import first_requests

    count = header.about.get("requests")
    if type(count) is not int or not 0 < count <= trace.n_requests:
        return 0
    same = hash_of(first_requests(trace, count)) == header.about.get("trace_sha256")
    return count if same else 0


def _seen_note(seen: int, trace: "Trace", warmup: float) -> str:
    from perc.metrics import warmup_requests

    if warmup_requests(trace, warmup) >= seen:
        return f"trained on the first {seen:,} requests, none of which is counted."
    if seen == trace.n_requests:
        return "trained on this very traffic: what it hits here says little of other."
    share = math.ceil(1e6 * seen / trace.n_requests) / 1e6
    return (
        f"trained on the first {seen:,} requests, of which some are counted. Count the "
        f"others alone with --warmup {share:g}."
    )


def _print(found: "Explanation") -> None:
    from perc.report import explain_tables as tables
    from perc.report.console import plain_console

    console = plain_console()
    console.print(
        f"{found.trace['source']}: {found.trace['requests']:,} requests, "
        f"{found.trace['distinct_blocks']:,} distinct blocks.",
        markup=False,
    )
    for sentence in tables.headline(found):
        console.print(sentence, markup=False)
    console.print(tables.importance_table(found))
    for sentence in tables.importance_sentences(found):
        console.print(sentence, markup=False)
    if found.dependence:
        console.print(tables.dependence_table(found))
    for sentence in tables.stories(found):
        console.print(sentence, markup=False)
    for name in ("importance", "dependence", "examples", "counted"):
        console.print(f"{name}: {found.definitions[name]}", style="dim", markup=False)
