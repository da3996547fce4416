"""What a bridge is told: which policy, which clock. From the environment or a config.

PERC_POLICY    a name of `perc policies`, with parameters (`perc_decay:tau_s=60`),
               or a policy file (`mine.npz`); unset or empty: perc does nothing
PERC_CLOCK     `seconds` (default), or `requests`: one tick a request, for tests and
               for traffic much faster than a request a second
PERC_STALE_S   how old prices may be where they change while blocks idle, default 0.5
"""

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perc.cli.policies import parse_policies
from perc.errors import InputError
from perc.types import AnyPolicy

CLOCKS = ("seconds", "requests")


@dataclass(frozen=True)
class Settings:
    """Of one bridge."""

    policy: AnyPolicy
    clock: Callable[[], float]  # seconds, or ticks, from any start
    tick: Callable[[], None]  # a request has ended
    stale_s: float = 0.0
    memory: int | None = None  # as of `perc.bridges.orders.order_of`


def from_environment() -> Settings | None:
    """Settings of `PERC_POLICY` and the others; None if it is not set.

    Raises:
        InputError: naming the variable, if its value does not do.
    """
    return settings_of(os.environ)


def settings_of(given: Mapping[str, str]) -> Settings | None:
    """Settings by the names of the environment's variables, None without a policy.

    Raises:
        InputError: naming the variable, if its value does not do.
    """
    text = given.get("PERC_POLICY", "").strip()
    if not text:
        return None
    try:
        policies = parse_policies(text)
    except (InputError, ValueError) as error:
        raise InputError(f"PERC_POLICY={text}: {error}") from None
    if len(policies) != 1:
        raise InputError(f"PERC_POLICY={text}: name one policy, not {len(policies)}.")
    clock, tick = _clock(given.get("PERC_CLOCK", CLOCKS[0]))
    stale_s = _seconds("PERC_STALE_S", given.get("PERC_STALE_S", "0.5"))
    return Settings(policies[0], clock, tick, stale_s)


def _clock(name: str) -> tuple[Callable[[], float], Callable[[], None]]:
    if name == "seconds":
        start = time.monotonic()
        return lambda: time.monotonic() - start, lambda: None
    if name == "requests":
        ticks = itertools.count(1)
        now = [0.0]

        def tick() -> None:
            now[0] = float(next(ticks))

        return lambda: now[0], tick
    raise InputError(f"PERC_CLOCK={name}: must be one of {', '.join(CLOCKS)}.")


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{name}={text}: must be seconds, 0 or more.")
    return value
