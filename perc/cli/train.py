"""`perc train`: a policy learned from the first part of a trace, judged on the rest."""

import json as json_module
import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.errors import InputError
from perc.files import POLICY_SUFFIX, check_writable, names_policy_file
from perc.metrics import warmup_requests
from perc.train.settings import Settings

if TYPE_CHECKING:
    from perc.compare import Comparison
    from perc.types import Guard, OnlinePolicy, Trace

METHOD_HELP = "how to learn: imitation, ttl, reinforce or evolution."
_LIKED = Settings()


def train(
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    *,
    out: Annotated[Path, arg(metavar="FILE.npz")],
    method: Annotated[str, arg(metavar="NAME", help=METHOD_HELP)] = "imitation",
    train: Annotated[float, arg(metavar="SHARE")] = 0.5,
    seed: int = _LIKED.seed,
    steps: int = _LIKED.steps,
    members: int = _LIKED.members,
    classes: int = _LIKED.classes,
    batch: int = _LIKED.batch,
    hidden: Annotated[str, arg(metavar="WIDTHS")] = ",".join(map(str, _LIKED.hidden)),
    rate: float = _LIKED.rate,
    decay: float = _LIKED.decay,
    weight_power: float = _LIKED.weight_power,
    held_out: float = _LIKED.held_out,
    no_guard: FlagCreatePairsOff[bool] = False,
    checkpoint: Annotated[Path | None, arg(metavar="FILE")] = None,
    json: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Learn a policy from the first part of a trace and judge it on the rest.

    Args:
        trace: file of the trace.
        out: the policy file to write; replaced if it exists.
        method: see METHOD_HELP.
        train: first share of the requests, all that is learned from; 1 leaves nothing
            to judge on.
        seed: of all random draws; the same seed gives the same policy.
        steps: of the optimiser; 0 = as the method likes.
        members: networks, averaged; 0 = as the method likes.
        classes: of blocks, each with a worth by age.
        batch: examples a step; 0 = as the method likes.
        hidden: widths of the hidden layers.
        rate: of learning, falls to 0 as a cosine; 0 = as the method likes.
        decay: of the weights.
        weight_power: a run of n blocks weighs n to that.
        held_out: share of the training part's sessions that only judge.
        no_guard: trust the policy blindly, see docs/safety.md.
        checkpoint: written while training; the same command goes on from it.
        json: print one JSON object instead of the table.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc.compare import check_blocks
    from perc.guard import DEFAULT
    from perc.policies.store import save
    from perc.train.fit import settled
    from perc.train.methods import METHODS
    from perc.train.network import check_storable
    from perc.tune_search import first_requests

    began = time.perf_counter()
    _check(trace, out, method, train, checkpoint)
    settings = Settings(
        seed=seed,
        steps=steps,
        members=members,
        hidden=_widths(hidden),
        classes=classes,
        batch=batch,
        rate=rate,
        decay=decay,
        weight_power=weight_power,
        held_out=held_out,
    )
    check_storable(settled(settings, METHODS[method]).members, settings.hidden)
    traffic = open_trace(trace, loading)
    check_blocks(traffic, required=True)
    count = traffic.n_requests
    count = count if train == 1 else warmup_requests(traffic, train)
    if not count:
        raise InputError(
            f"--train {train:g} of {traffic.n_requests:,} requests is none; give a "
            "larger share, such as 0.5."
        )
    part = first_requests(traffic, count)
    guard = None if no_guard else DEFAULT
    policy, score = _learn(part, method, settings, guard, checkpoint)
    about = describe(part, method, settings, score)
    save(out, policy, about=about)
    print(f"wrote {out}", file=sys.stderr)
    judged = _judge(traffic, out, count, train)
    _say(traffic, out, about, judged, _next(trace, out, train, loading), json)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def _check(
    trace: str, out: Path, method: str, share: float, checkpoint: Path | None
) -> None:
    """Finds before any work what would fail after it."""
    if not names_policy_file(str(out)):
        raise InputError(f"--out {out}: a policy file ends in {POLICY_SUFFIX}.")
    if not 0 < share <= 1:
        raise InputError(
            f"--train {share:g} is no share of the requests; give more than 0 and at "
            "most 1, such as 0.5."
        )
    for flag, path in (("--out", out), ("--checkpoint", checkpoint)):
        if path is not None and path.is_dir():
            raise InputError(f"{flag} {path} is a folder; name a file in it.")
        if path is not None and path.resolve() == Path(trace).resolve():
            raise InputError(f"{flag} {path} is the trace itself; name another file.")
    if "," in str(out):
        raise InputError(
            f"--out {out}: lists of policies are split at commas; name it without."
        )
    if checkpoint is not None and checkpoint.resolve() == out.resolve():
        raise InputError(f"--checkpoint {checkpoint} is --out too; name another file.")
    from perc.train.methods import METHODS

    if method not in METHODS:
        raise InputError(f"--method {method!r} is none of {', '.join(METHODS)}.")
    for flag, path in (("--out", out), ("--checkpoint", checkpoint)):
        if path is not None:
            _check_place(flag, path)


def _check_place(flag: str, path: Path) -> None:
    try:
        check_writable(path.parent)
    except InputError:  # names a file that the user did not
        raise InputError(
            f"{flag} {path}: no file can be written into {path.parent}; choose another "
            "folder."
        ) from None


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise InputError(
            f"--hidden {text!r}: give whole numbers, such as 32,32."
        ) from None


def _learn(
    part: "Trace",
    method: str,
    settings: Settings,
    guard: "Guard | None",
    checkpoint: Path | None,
) -> tuple["OnlinePolicy", float | None]:
    """The policy, and its held-out score if training took a step."""
    from perc.cli.progress import progress_bar
    from perc.train.fit import fit

    heard: list[str] = []
    try:
        with progress_bar(f"training by {method},") as bar:

            def progress(done: int, total: int, what: str) -> None:
                heard[:] = [what]
                if bar:
                    bar(done, total, what)

            policy = fit(
                part,
                method,
                settings=settings,
                guard=guard,
                checkpoint=checkpoint,
                progress=progress,
            )
    except KeyboardInterrupt:
        print(f"perc: {_interrupted(checkpoint)}", file=sys.stderr)
        raise
    return policy, float(heard[0].rpartition(" ")[2]) if heard else None


def _interrupted(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "nothing is kept; with --checkpoint FILE training could go on"
    if not checkpoint.exists():
        return f"stopped before {checkpoint} was first written; nothing is kept"
    return f"the same command goes on from {checkpoint}"


def describe(
    part: "Trace", method: str, settings: Settings, score: float | None
) -> dict[str, Any]:
    """How a policy was trained, for its file; the same training says the same."""
    from perc.traces.hashing import hash_of
    from perc.train.fit import settled
    from perc.train.methods import METHODS

    return {
        "method": method,
        "seed": settings.seed,
        "settings": asdict(settled(settings, METHODS[method])),
        "trace": part.source,
        "trace_sha256": hash_of(part),
        "requests": part.n_requests,
        "kinds": list(part.kinds),
        "held_out_score": score,
    }


def _judge(
    traffic: "Trace", out: Path, count: int, share: float
) -> "Comparison | None":
    """The file beside its rivals on what it has not seen, None if that is nothing."""
    from perc import compare
    from perc.cli.progress import progress_bar

    if count == traffic.n_requests or traffic.stop[count - 1] == traffic.n_accesses:
        return None
    names = ["lru", "perc", os.fspath(out), "belady"]
    with progress_bar("judging") as progress:
        return compare(traffic, names, warmup=share, progress=progress)


def _next(path: str, out: Path, share: float, loading: Loading) -> str:
    """Repeats the judgement with `perc compare`, or judges on other traffic."""
    whole = share == 1
    words = ["perc", "compare", "OTHER_TRACE" if whole else path]
    words += ["--policies", f"lru,perc,{out},belady"]
    words += [] if whole else ["--warmup", f"{share:g}"]
    for name, value in asdict(loading).items():
        if value != getattr(AS_IT_COMES, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _say(
    traffic: "Trace",
    out: Path,
    about: dict[str, Any],
    judged: "Comparison | None",
    following: str,
    as_json: bool,
) -> None:
    from perc.report.console import plain_console
    from perc.report.learned_verdict import won_or_lost
    from perc.report.tables import comparison_table

    sentences = (
        won_or_lost(judged)
        if judged
        else ["Nothing is left to judge it on: compare it on other traffic."]
    )
    if as_json:
        found = {
            "policy": os.fspath(out),
            "about": about,
            "judged": judged.as_dict() if judged else None,
            "verdict": sentences,
            "next": following,
        }
        print(json_module.dumps(found, allow_nan=False))
        return
    console = plain_console()
    score = about["held_out_score"]
    shown = "" if score is None else f", held-out score {score:.4f}"
    console.print(
        f"{traffic.source}: learned by {about['method']} from the first "
        f"{about['requests']:,} of {traffic.n_requests:,} requests{shown}.",
        markup=False,
    )
    if judged:
        console.print(comparison_table(judged))
    for sentence in sentences:
        console.print(sentence, markup=False)
    if judged:
        counted = judged.definitions["counted"]
        console.print(f"counted: {counted}", style="dim", markup=False)
    console.print(f"\nNext: {following}", markup=False, soft_wrap=True)
