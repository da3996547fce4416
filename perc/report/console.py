"""The console that tables are printed on: no name of a file steers the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from perc.printable import printable


class _Careful(Console):
    """Escapes controls in the words of cells and sentences; colours are rich's own."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **options)


def plain_console(*, highlight: bool = False, width: int | None = None) -> Console:
    """A console that prints words as they are.

    Args:
        highlight: colour numbers and the like on a terminal.
        width: columns; None: the terminal's.
    """
    return _Careful(highlight=highlight, markup=False, width=width)
