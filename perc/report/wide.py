"""A console on which no figure is cut: a terminal may break a line, not a number."""

from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table

from perc.report.console import plain_console

FAR = 10_000  # columns, more than any table has


def wide_console(*tables: Table) -> Console:
    """As wide as the terminal, or as these tables need where that is more.

    A pipe counts as 80 columns.

    Example:
        >>> table = Table("a figure")
        >>> table.add_row("1" * 2000)
        >>> wide_console(table).width
        2004
    """
    console = plain_console()
    room = console.options.update(width=FAR)
    need = max(console.measure(table, options=room).maximum for table in tables)
    return plain_console(width=max(need, console.width))


def print_table(console: Console, table: Table) -> None:
    """Without the blanks at the right, over which a terminal would break lines."""
    found = []
    for line in console.render_lines(table, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
        found += [*line, Segment.line()]
    console.print(Segments(found), end="")
