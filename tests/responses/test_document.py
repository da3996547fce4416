"""The examples of docs/responses.md run and print what they should."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "responses.md"


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_examples_of_the_document_run(capsys):
    for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(compile(code, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out == (
        "semantic 16 tokens. 0.93 0.5\n0.5 0.4 0.5\n0.9 0.2 0.0\n"
    )
