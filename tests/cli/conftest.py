"""Runs the command as a person would, and looks at all that comes back."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perc.cli import main

DATA = Path(__file__).parents[1] / "data"


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Both streams on one line, without frames, to search for sentences."""
        return " ".join((self.out + self.err).replace("│", " ").split())


Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """80 columns; the command sets XLA_FLAGS for its own process, not for the tests."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))


@pytest.fixture
def perc(capsys) -> Run:
    """Runs `perc ...` in this process."""

    def run(*words: object) -> Said:
        code = 0
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def refused(perc) -> Run:
    """Runs what must fail as bad input: exit code 2, stdout empty, no traceback."""

    def run(*words: object) -> Said:
        said = perc(*words)
        assert said.code == 2
        assert said.out == ""
        assert said.err.strip() and "Traceback" not in said.err
        return said

    return run


@pytest.fixture
def mooncake() -> Path:
    """Ten requests of at most 7 blocks; the distinct ones are 16."""
    return DATA / "mooncake.jsonl"


def start(*words: object, **kwargs) -> subprocess.Popen[str]:
    """Starts `perc ...` as a process of its own."""
    # SIGINT is ignored where the tests run in the background of a script.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from perc.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "COLUMNS": "80"},
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs},
    )
