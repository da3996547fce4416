"""`perc make WORKLOAD`: writes synthetic traffic to a file."""

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perc.workloads import generators

if TYPE_CHECKING:
    from perc.types import Trace

_OUT_HELP = "out: file to write, such as chat.parquet; its suffix says how."


def _summary(trace: "Trace", out: Path) -> str:
    """What was made, and what to do with it."""
    sessions = int(trace.session.max()) + 1 if trace.n_requests else 0
    span_min = float(trace.arrival_s[-1]) / 60 if trace.n_requests else 0.0
    return (
        f"{trace.source}\n"
        f"  {trace.n_requests:,} requests of {sessions:,} sessions in "
        f"{span_min:,.1f} min\n"
        f"  {trace.n_accesses:,} block accesses, {trace.n_blocks:,} distinct blocks "
        f"of {trace.block_tokens} tokens\n"
        f"written to {out}\n"
        f"next: perc compare {shlex.quote(str(out))}"
    )


def _command(name: str, generator: Callable[..., "Trace"]) -> Callable[..., None]:
    """The generator with `out`: same parameters, same help, writes what it makes."""

    def command(*, out: Path, **params: Any) -> None:
        from perc.report.console import plain_console
        from perc.traces import check_target, save

        check_target(out)
        trace = generator(**params)
        save(trace, out)
        plain_console().print(_summary(trace, out))

    signature = inspect.signature(generator)
    path = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, annotation=Path)
    # tyro reads names, types, defaults and help from these.
    command.__signature__ = signature.replace(  # pyright: ignore
        parameters=[path, *signature.parameters.values()], return_annotation=None
    )
    command.__annotations__ = {"out": Path, **generator.__annotations__, "return": None}
    command.__name__ = command.__qualname__ = name
    doc = inspect.getdoc(generator) or ""
    command.__doc__ = doc.replace("Args:\n", f"Args:\n    {_OUT_HELP}\n", 1)
    return command


commands: dict[str, Callable[..., None]] = {
    name: _command(name, generator) for name, generator in generators.items()
}
