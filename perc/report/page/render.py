"""One page of many runs, whole in itself: no file beside it, no network."""

import shlex
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from perc.files import write_atomically
from perc.report.page.folders import Run, read_run
from perc.report.page.sections import section_of

HERE = "perc.report.page"
SENTENCES = 8  # of a summary; what follows unfolds


def write_report(folders: Sequence[Path], path: Path, title: str | None) -> Path:
    """Writes the page of the runs in some folders.

    Args:
        folders: as perc's commands wrote them with `--out`.
        path: of the page.
        title: above it; by default what the first run is about.

    Raises:
        InputError: if a folder is no finished run, or the page cannot be written.
    """
    text = page([read_run(folder) for folder in folders], title)
    return write_atomically(path, lambda temporary: temporary.write_text(text))


def page(
    runs: Sequence[Run], title: str | None = None, *, template: str = "page.html"
) -> str:
    """The page as HTML. Whatever stands in a run's files is escaped."""
    sections = [section_of(run) for run in runs]
    return render(
        template,
        title=title or f"perc: {sections[0].title}",
        sections=sections,
        shown=SENTENCES,
        version=version("perc-kv"),
    )


def render(name: str, **values: object) -> str:
    """A template of this room, with its style and script; values are escaped."""
    environment = Environment(
        loader=FunctionLoader(text_of),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["shell"] = shlex.join
    css, js = Markup(text_of("page.css")), Markup(text_of("page.js"))
    return environment.get_template(name).render(css=css, js=js, **values)


def text_of(name: str) -> str:
    """A file of this room: a template, its style or its script."""
    return files(HERE).joinpath(name).read_text(encoding="utf-8")
