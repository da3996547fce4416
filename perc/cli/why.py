"""`--why` of `perc compare`, with rules and without."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from perc.attribution import Attribution, Grouping
    from perc.types import Trace


def causes(
    trace: "Trace",
    policies: "Iterable[Any]",
    capacities: list[int | float],
    *,
    why: bool,
    why_by: "Grouping | None",
    warmup: float,
    ruled: "Mapping[str, Mapping[int, np.ndarray]] | None" = None,
) -> "Attribution | None":
    """Why each policy missed; None if nobody asks. The arguments are `attribute`'s."""
    if not (why or why_by):
        return None
    from perc.attribution import attribute
    from perc.cli.progress import progress_bar

    with progress_bar("asking why") as progress:
        return attribute(
            trace,
            policies,
            capacities,
            warmup=warmup,
            by=why_by,
            ruled=ruled,
            progress=progress,
        )


def print_json(result: Any, misses: "Attribution | None") -> None:
    """Prints a comparison, and the causes if there are any, as one JSON object."""
    answer = result.as_dict()
    if misses:
        answer["misses"] = misses.as_dict()
    print(json.dumps(answer, allow_nan=False))
