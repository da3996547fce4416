"""What the documents show is run: examples in docstrings, README and docs/."""

import doctest
import importlib
import pkgutil
import re
import shutil
from pathlib import Path

import pytest

import perc
from perc.cli import main
from perc.policies.registry import registry

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
CORE = [m.name for m in pkgutil.walk_packages(perc.__path__, "perc.")]
POLICIES = [m.name for m in pkgutil.iter_modules(perc.policies.__path__)]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["perc", *CORE])
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", POLICIES)
def test_examples_of_policies(name):
    module = importlib.import_module(f"perc.policies.{name}")
    result = doctest.testmod(module)
    assert result.attempted and result.failed == 0


def test_readme_example_runs(capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    assert "Row(policy='belady'" in capsys.readouterr().out


def test_readme_commands_exist(capsys):
    text = "\n".join(blocks(ROOT / "README.md", "bash"))
    words = set(re.findall(r"^(?:.*&& )?perc (\w+)", text, re.MULTILINE))
    table = re.findall(r"^\| `perc ([\w-]+)", (ROOT / "README.md").read_text(), re.M)
    with pytest.raises(SystemExit):
        main(["--help"])
    (commands,) = re.findall(r"^usage: perc .*\{(.+)\}", capsys.readouterr().out)
    assert set(table) == set(commands.split(","))
    assert "compare" in words and words <= set(table)


def test_readme_leads_from_a_trace_to_a_page(tmp_path, monkeypatch):
    (block,) = [b for b in blocks(ROOT / "README.md", "bash") if "perc report" in b]
    lines = [line.split("#")[0].split() for line in block.splitlines()]
    commands = [words[1:] for words in lines if words[0] == "perc"]
    assert len(lines) == 5 and len(commands) == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLA_FLAGS", "")  # the command sets it
    shutil.copy(DATA / "mooncake.jsonl", "trace.jsonl")
    for words in commands:
        main(words)
    assert "Why prompts missed" in (tmp_path / "report.html").read_text()


def test_readme_lists_every_policy():
    text = (ROOT / "README.md").read_text()
    assert all(f"`{name}`" in text for name in registry)


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="run away from a checkout")
@pytest.mark.parametrize("name", registry)
def test_every_policy_is_on_the_board_and_explained(name):
    tables = (ROOT / "docs" / "board.md").read_text().split("\n## ")[1:]
    assert tables and all(f"\n| `{name}`" in table for table in tables)
    assert f"`{name}`" in (ROOT / "docs" / "policies.md").read_text()


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="run away from a checkout")
def test_documents_link_to_what_exists():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            if "://" not in target:
                assert (document.parent / target).exists(), (document.name, target)


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="run away from a checkout")
def test_the_policy_that_the_docs_add_works():
    (code, *_) = blocks(ROOT / "docs" / "extending.md", "python")
    scope: dict = {}
    exec(compile(code, "docs/extending.md", "exec"), scope)
    trace = perc.make("chat", requests=100)
    rows = perc.compare(trace, ["lru", scope["long_prompts"]()], [100]).rows
    assert rows[1].policy == "long_prompts"


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="run away from a checkout")
def test_the_online_policy_that_the_docs_add_works():
    code = blocks(ROOT / "docs" / "extending.md", "python")[1]
    scope: dict = {}
    exec(compile(code, "docs/extending.md", "exec"), scope)
    (row,) = perc.compare(perc.make("chat", requests=100), [scope["decay"]], [100]).rows
    assert row.block_hit_ratio > 0


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="run away from a checkout")
def test_the_bridge_that_the_docs_add_works(capsys):
    code = blocks(ROOT / "docs" / "extending.md", "python")[-1]
    exec(compile(code, "docs/extending.md", "exec"), {})
    assert capsys.readouterr().out == "True\n"
