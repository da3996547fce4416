"""`perc compare RUN RUN`: what changed between two runs, for people and for CI."""

import sys
from collections.abc import Sequence
from pathlib import Path

from perc.errors import InputError

WORSE = 1  # exit code


def compare_two_runs(folders: Sequence[str]) -> None:
    """Prints what changed; exits with `WORSE` if something got worse or is missing.

    Raises:
        InputError: if these are not two runs that can be compared.
    """
    from perc.report.console import plain_console
    from perc.report.page.folders import read_run
    from perc.report.regression import changes_table, compare_runs, words_of

    if len(folders) != 2:
        raise InputError(
            f"perc compare takes one trace, or two folders of --out, not "
            f"{len(folders)} paths."
        )
    files = [folder for folder in folders if not Path(folder).is_dir()]
    if files:
        raise InputError(
            f"{files[0]}: is no folder. Two paths are two runs, as --out wrote them; a "
            "trace is compared alone."
        )
    old, new = (read_run(Path(folder)) for folder in folders)
    found = compare_runs(old, new)
    console = plain_console(highlight=True)
    console.print(changes_table(found))
    for sentence in words_of(found):
        console.print(sentence, markup=False, highlight=False)
    if found.worse or found.gone:
        sys.exit(WORSE)
