"""The folder of sample files, and a way to write small files of one's own."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Ten-line samples, invented in the shape of each format."""
    return Path(__file__).parents[1] / "data"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes bytes, a text or lines to a file and returns its path."""

    def to_file(content: bytes | str | list[str], name: str = "trace.jsonl") -> str:
        if isinstance(content, list):
            content = "".join(line + "\n" for line in content)
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return to_file
