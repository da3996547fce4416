"""What the CPU offload tier is told: by the environment, and by clients.

PERC_OFFLOAD_POLICY   as PERC_POLICY, which it goes before
PERC_OFFLOAD_ADMIT    least share of a class's chunks that must have returned for new
                      ones to be stored (`perc.bridges.vllm_offload_spec`); unset or 0:
                      everything is stored
PERC_CLOCK, PERC_STALE_S   as in `perc.bridges.settings`

Clients give the hints of `perc.bridges.vllm_requests` in `kv_transfer_params`, or as
the payload of an action of type `perc` among the request's `kv_hints`.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from packaging.version import Version

from perc.bridges.settings import Settings, settings_of
from perc.bridges.uses import Facts
from perc.bridges.vllm_requests import Reader
from perc.bridges.vllm_versions import BELOW, FROM, installed
from perc.errors import InputError

POLICY, ADMIT = "PERC_OFFLOAD_POLICY", "PERC_OFFLOAD_ADMIT"
HINTS = "perc"  # type of an action among `kv_hints`


def offload_settings(given: Mapping[str, str]) -> Settings | None:
    """Settings by the names of the environment's variables, None without a policy.

    Raises:
        InputError: naming the variable, if its value does not do.

    >>> offload_settings({"PERC_POLICY": "lru", POLICY: "lfu"}).policy.name
    'lfu'
    """
    own = given.get(POLICY, "").strip()
    if not own:
        return settings_of(given)
    try:
        return settings_of({**given, "PERC_POLICY": own})
    except InputError as error:
        raise InputError(str(error).replace("PERC_POLICY", POLICY, 1)) from None


def least_return(given: Mapping[str, str]) -> float:
    """The share that `PERC_OFFLOAD_ADMIT` asks for, 0 if it asks for none.

    Raises:
        InputError: if it is no number from 0 to 1.
    """
    text = given.get(ADMIT, "").strip() or "0"
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError(f"{ADMIT}={text}: must be a share from 0 (all) to 1.")
    return share


def untested() -> str | None:
    """Why this vLLM's offload tier is not to be touched, None if it may be."""
    version = installed()
    if version is None:
        return "vLLM is not installed"
    if Version(FROM) <= Version(version) < Version(BELOW):
        return None
    return (
        f"vLLM {version} is not one that perc was tested with ({FROM} <= version < "
        f"{BELOW})"
    )


class OffloadFacts:
    """Reads the facts of requests out of vLLM's `ReqContext`."""

    def __init__(self) -> None:
        self._reader = Reader()

    def facts(self, context: Any, tokens: int) -> Facts:
        """Of a request with so many tokens in the tier."""
        hints = dict(context.kv_transfer_params or {})
        told = getattr(context, "kv_hints", None)  # since vLLM 0.32
        for action in getattr(told, "actions", ()):
            if action.action_type == HINTS:
                hints.update(action.payload)
        request = SimpleNamespace(
            sampling_params=SimpleNamespace(extra_args=hints),
            priority=0,  # vLLM's own is not in the context
            num_prompt_tokens=tokens,
            num_output_tokens=0,
            is_finished=lambda: True,
        )
        return self._reader.facts(request)
