"""Synthetic traffic: one generator a file, the same arguments give the same trace."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perc.errors import InputError
from perc.workloads.agent import agent
from perc.workloads.chat import chat
from perc.workloads.rag import rag
from perc.workloads.scan import scan
from perc.workloads.zipf import zipf

if TYPE_CHECKING:  # types imports jax, which --help need not wait for
    from perc.types import Trace

__all__ = ["agent", "chat", "generators", "make", "rag", "scan", "zipf"]

generators: dict[str, Callable[..., "Trace"]] = {
    "chat": chat,
    "agent": agent,
    "rag": rag,
    "zipf": zipf,
    "scan": scan,
}


def make(name: str, *, seed: int = 0, **params: Any) -> "Trace":
    """Makes a synthetic trace.

    Args:
        name: one of `generators`.
        seed: of all random draws.
        params: keyword arguments of that generator.

    Returns:
        The trace; its `source` is the call that gives it again.

    Raises:
        InputError: if there is no such generator, or an argument is unknown or out
            of range.

    Example:
        >>> make("zipf", requests=3, seed=1).source
        'zipf(requests=3, seed=1)'
    """
    if name not in generators:
        raise InputError(f"no workload {name!r}; there are {', '.join(generators)}.")
    known = inspect.signature(generators[name]).parameters
    for param in params:
        if param not in known:
            raise InputError(f"{name} takes no {param!r}; it takes {', '.join(known)}.")
    return generators[name](seed=seed, **params)
