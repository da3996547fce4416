"""Progress on stderr: a bar on a terminal, nothing in a pipe or a log."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perc.compare import Progress


@contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """Gives a callback (done, total, what), or None where no one watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=f"{title} {what}"
        )
