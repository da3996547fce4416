"""The examples of docs/prefix.md run and print what they should."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[1] / "docs" / "prefix.md"


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_examples_of_the_document_run(capsys):
    examples = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for code in examples:
        exec(compile(code, str(DOCUMENT), "exec"), {})
    assert len(examples) == 2
    assert capsys.readouterr().out == (
        "Served(matched=0, added=3, evicted=2) [(1, 2, 3, 4), (1, 2, 7), (5, 6, 7)]\n"
        "0.167\nlru 0.235\narc 0.235\nbelady 0.353\n"
    )
