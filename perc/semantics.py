"""Rules of other tools, so that their numbers and perc's can be laid side by side."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perc.errors import InputError
from perc.types import AnyPolicy


@dataclass(frozen=True)
class Semantics:
    """How a comparison is counted, where it differs from perc's own rules."""

    about: str  # one line for people
    warmup: float | None = None  # share that is not counted, None = as asked
    bypass: tuple[str, ...] = ()  # policies that may refuse to store a block


SEMANTICS = {
    "perc": Semantics("perc's own: forced unless a policy bypasses, window as asked"),
    "kvcache-simulator": Semantics(
        "the last half of the requests counts, compare the token hit ratio; belady and "
        "fifo bypass. lru and belady are equal to it token for token; its fifo keeps "
        "the running request's path, which a bypassing fifo does not",
        warmup=0.5,
        bypass=("belady", "fifo"),
    ),
}


def under(
    name: str, policies: Iterable[AnyPolicy], warmup: float
) -> tuple[list[AnyPolicy], float]:
    """Policies and warm-up share under the rules of another tool.

    Raises:
        InputError: for rules that perc does not know.
    """
    if name not in SEMANTICS:
        raise InputError(
            f"no semantics are called {name!r}. There are: {', '.join(SEMANTICS)}."
        )
    rules = SEMANTICS[name]
    return (
        [replace(p, bypass=p.bypass or p.name in rules.bypass) for p in policies],
        warmup if rules.warmup is None else rules.warmup,
    )
