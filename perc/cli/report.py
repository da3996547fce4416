"""`perc report`: runs as one page that can be sent to a colleague."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


def report(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="FOLDER ...")],
    *,
    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html"),
    title: Annotated[str | None, arg(metavar="TEXT")] = None,
) -> None:
    """Make one HTML page of runs: curves, tables, definitions, how to repeat them.

    The page needs no network and no other file.

    Args:
        runs: folders that perc compare, simulate, plan or sweep wrote with --out.
        out: the page; it is replaced.
        title: above it.

    Raises:
        InputError: if a folder is no finished run, or the page cannot be written.
    """
    from perc.errors import InputError
    from perc.files import check_writable
    from perc.report.page.render import write_report

    if not runs:
        raise InputError(
            "perc report needs a folder. Make one: perc compare --why --out run"
        )
    check_writable(out.parent)
    if out.is_dir() or out.suffix != ".html":
        raise InputError(f"--out {out}: name a file that ends in .html.")
    print(f"wrote {write_report(runs, out, title)}", file=sys.stderr)
