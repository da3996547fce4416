"""`perc tune`: which parameters a policy should have on a trace."""

import json as json_module
import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.bootstrap import RESAMPLES
from perc.cli.loading import AS_IT_COMES, Loading, open_trace
from perc.errors import InputError
from perc.files import names_policy_file
from perc.tune import DEFAULT_CAPACITIES, OBJECTIVES, Range

if TYPE_CHECKING:
    from perc.tune import Tuning

_OBJECTIVE_HELP = f"what to maximise the saved share of: {', '.join(OBJECTIVES)}."


def tune(
    trace: Annotated[Positional[str], arg(metavar="TRACE")],
    policy: Annotated[Positional[str], arg(metavar="POLICY")],
    *,
    space: Annotated[str | None, arg(metavar="RANGES")] = None,
    capacities: Annotated[str, arg(metavar="SIZES")] = ",".join(
        f"{share:.0%}" for share in DEFAULT_CAPACITIES
    ),
    samples: int = 256,
    seed: int = 0,
    train: float = 0.5,
    objective: Annotated[str, arg(help=_OBJECTIVE_HELP)] = "recompute_s",
    halving: int = 4,
    bootstrap: int = RESAMPLES,
    json: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Tune a policy on the first part of a trace and judge it on the rest.

    Args:
        trace: file of the trace.
        policy: name of a policy with parameters, such as perc.
        space: what to search, such as smoothing=10:9000:log,cost_weight=0:1; some
            policies have ranges of their own.
        capacities: cache sizes in blocks (4096) or shares of the distinct blocks
            (0.05 or 5%); one set of parameters has to serve them all.
        samples: configurations to draw; thousands are fine.
        seed: of the draws, and of the intervals.
        train: first share of the requests, all that the search sees.
        objective: see _OBJECTIVE_HELP.
        halving: one configuration in so many survives a round; 1 replays the whole
            training part for all.
        bootstrap: samples of sessions for the intervals, 0 for none.
        json: print one JSON object instead of the table.
        loading: how to read the trace.

    Raises:
        InputError: if the trace or a flag is not as it must be.
    """
    from perc.capacities import parse_capacities
    from perc.cli.progress import progress_bar
    from perc.policies.registry import registry
    from perc.tune import tune as run

    began = time.perf_counter()
    if names_policy_file(policy):
        raise InputError(
            f"{policy} is a file, whose parameters are fixed. Name a policy, such as "
            "perc."
        )
    constructor, sizes = registry[policy], parse_capacities(capacities)
    ranges = None if space is None else parse_space(space)
    traffic = open_trace(trace, loading)
    with progress_bar("tuning on") as progress:
        result = run(
            traffic,
            constructor,
            capacities=sizes,
            space=ranges,
            samples=samples,
            seed=seed,
            train=train,
            objective=objective,
            halving=halving,
            bootstrap=bootstrap,
            progress=progress,
        )
    _say_notes(result)
    if json:
        print(json_module.dumps(result.as_dict(), allow_nan=False))
    else:
        _print(result, trace, capacities, train)
    print(f"done in {time.perf_counter() - began:.1f} s", file=sys.stderr)


def parse_space(text: str) -> dict[str, Range]:
    """Reads "tau_s=10:2000:log,cost_weight=0:1".

    Raises:
        InputError: for what is not of this form.
    """
    return dict(map(_parse_range, text.split(",")))


def _parse_range(word: str) -> tuple[str, Range]:
    key, _, ends = word.strip().partition("=")
    low, _, rest = ends.partition(":")
    high, _, scale = rest.partition(":")
    try:
        if not key or scale not in ("", "log"):
            raise ValueError
        return key, Range(float(low), float(high), log=scale == "log")
    except InputError as error:
        raise InputError(f"--space {word.strip()}: {error}") from None
    except ValueError:
        raise InputError(
            f"--space {word.strip()!r} is no range. Give NAME=LOW:HIGH or "
            "NAME=LOW:HIGH:log, separated by commas."
        ) from None


def _say_notes(tuning: "Tuning") -> None:
    held = tuning.trace["training_blocks"]
    sizes = dict.fromkeys(row.capacity_blocks for row in tuning.judged.rows)
    large = [f"{size:,}" for size in sizes if size >= held]
    if large:
        print(
            f"note: {', '.join(large)} blocks hold all {held:,} of the training part: "
            "nothing can be learned at that size.",
            file=sys.stderr,
        )


def _print(tuning: "Tuning", path: str, capacities: str, train: float) -> None:
    from perc.report.console import plain_console
    from perc.report.tune_tables import sentences, tuning_table

    console = plain_console()
    rounds = ", then ".join(
        f"{rung.configurations:,} on {rung.requests:,}" for rung in tuning.rungs
    )
    console.print(
        f"{tuning.trace['source']}: {tuning.policy}, configurations on requests: "
        f"{rounds}; judged on the other "
        f"{tuning.trace['requests'] - tuning.trace['training_requests']:,}.",
        markup=False,
    )
    console.print(tuning_table(tuning))
    for sentence in sentences(tuning):
        console.print(sentence, markup=False)
    for name in ("objective", "held_out", "interval"):
        console.print(f"{name}: {tuning.definitions[name]}", style="dim", markup=False)
    console.print(
        f"\nNext: {next_command(tuning, path, capacities, train)}",
        markup=False,
        soft_wrap=True,
    )


def next_command(tuning: "Tuning", path: str, capacities: str, train: float) -> str:
    """Repeats the judgement with `perc compare`."""
    settings = "".join(f":{key}={value}" for key, value in tuning.parameters.items())
    policies = ["lru", tuning.policy, tuning.policy + settings, "belady"]
    return shlex.join(
        ["perc", "compare", path, "--policies", ",".join(policies)]
        + ["--capacities", capacities, "--warmup", f"{train:g}"]
    )
