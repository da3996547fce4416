"""What a request of vLLM says about itself, and what its client says.

Clients give hints in `SamplingParams.extra_args`, or over HTTP in `vllm_xargs`:

    perc_session    text or number; else `session_id` of the request or in extra_args;
                    else what follows `session:` in the request's `cache_salt`
    perc_turn       1 = first request of its session; else inferred by prefix extension
    perc_kind       text, such as the stop reason or `batch`
    perc_priority   higher is more important; else vLLM's own, in which lower is
    perc_hold_s     keep its blocks for so many seconds, if it can be done
    perc_pin        true: keep them until memory runs out

A hint that is not what it must be is passed over; `ignored` counts them.
"""

import logging
import math
from typing import Any

from perc.bridges.uses import Facts

logger = logging.getLogger("vllm.perc")
KINDS = 16  # kinds that policies tell apart
SALTED = "session:"
LEAST, MOST = -(2**31), 2**31 - 1


def session_of(said: Any, request: Any) -> str | int | None:
    """The name of a request's conversation: as said, or as its cache salt has it.

    A salt alone names no conversation: most often it is a tenant's.
    """
    if said is None:
        salt = getattr(request, "cache_salt", None)
        if salt and salt.startswith(SALTED):
            return salt[len(SALTED) :]
    return said if isinstance(said, str | int) else None


class Reader:
    """Reads the facts of vLLM's requests."""

    def __init__(self) -> None:
        self.ignored = 0
        self._kinds: dict[str, int] = {}

    def facts(self, request: Any) -> Facts:
        """Of a `vllm.v1.request.Request` that gives back its blocks."""
        given = getattr(request.sampling_params, "extra_args", None)
        if not given:
            return Facts(
                session_of(getattr(request, "session_id", None), request),
                priority=-request.priority,
                input_tokens=request.num_prompt_tokens,
                output_tokens=request.num_output_tokens,
                preempted=not request.is_finished(),
            )
        hold_s = self._number(given, "perc_hold_s", 0.0, math.inf) or 0.0
        if given.get("perc_pin") in (True, 1, "true", "1"):
            hold_s = math.inf
        priority = self._whole(given, "perc_priority")
        session = given.get("perc_session", given.get("session_id"))
        if session is None:
            session = getattr(request, "session_id", None)
        return Facts(
            session=session_of(session, request),
            turn=self._whole(given, "perc_turn"),
            kind=self._kind(given),
            kind_name=str(given.get("perc_kind") or ""),
            priority=-request.priority if priority is None else priority,
            input_tokens=request.num_prompt_tokens,
            output_tokens=request.num_output_tokens,
            hold_s=hold_s,
            preempted=not request.is_finished(),
        )

    def _kind(self, given: dict[str, Any]) -> int:
        kind = given.get("perc_kind")
        if kind is None:
            return 0
        if str(kind) not in self._kinds:
            if len(self._kinds) >= KINDS - 1:
                return KINDS - 1
            self._kinds[str(kind)] = len(self._kinds) + 1
        return self._kinds[str(kind)]

    def _whole(self, given: dict[str, Any], name: str) -> int | None:
        number = self._number(given, name, LEAST, MOST)
        return None if number is None else int(number)

    def _number(self, given, name: str, low: float, high: float) -> float | None:
        value = given.get(name)
        if value is None:
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if low <= number <= high:
            return number
        self.ignored += 1
        if self.ignored == 1:
            logger.warning(
                "perc: the hint %s=%r is no number from %g to %g and is passed over; "
                "so will others be, silently.",
                name,
                value,
                low,
                high,
            )
        return None
