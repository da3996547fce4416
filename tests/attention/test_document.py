"""The examples of docs/attention.md run and print what they should."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "attention.md"


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_examples_of_the_document_run(capsys):
    for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        exec(compile(code, str(DOCUMENT), "exec"), {})
    assert capsys.readouterr().out == (
        "True True\n[24512, 255]\n[1.8, 2.44, 3.36, 4.33]\n"
    )
