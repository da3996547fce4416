"""What the site has beside the files of docs/: the README, the commands' help, and text
in place of links to files that a site has not.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
FROM_ROOT = {
    "index.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
WIDTH = "76"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for page, source in FROM_ROOT.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "commands.md", content=_commands()))
    return files


def on_page_markdown(markdown: str, page, config: MkDocsConfig, files: Files) -> str:
    """Writes the name of a file where a link would leave the site."""
    here = Path(page.file.src_uri).parent

    def kept(match: re.Match) -> str:
        words, target = match.groups()
        path = target.partition("#")[0]
        if not path or "://" in path:
            return match[0]
        name = os.path.normpath(here / path)
        if files.get_file_from_path(name) is not None:
            return match[0]
        shown = words.strip("`")
        inside = name.removeprefix("../")
        return f"`{shown}`" if shown in inside else f"{words} (`{inside}`)"

    return LINK.sub(kept, markdown)


def _commands() -> str:
    """The help of every command, as it is printed."""
    said = _help([])
    (listed,) = re.findall(r"^usage: perc .*\{(.+)\}", said)
    parts = [
        "# Commands\n\nAs `perc COMMAND --help` prints it.",
        f"```text\n{said}\n```",
    ]
    for name in listed.split(","):
        parts.append(f"## perc {name}\n\n```text\n{_help([name])}\n```")
    return "\n\n".join(parts) + "\n"


def _help(words: list[str]) -> str:
    done = subprocess.run(
        [Path(sys.executable).with_name("perc"), *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": WIDTH, "TERM": "dumb"},
    )
    return done.stdout.strip()
