"""Folders of runs: what perc writes is read, what is damaged is refused in words."""

import json
import os
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perc.cli import main
from perc.errors import InputError
from perc.report.page.folders import DESCRIBED, describe, read_run, shown
from perc.report.page.render import page
from perc.report.page.shape import ABOUT, COLUMNS

TRACE = str(Path(__file__).parents[1] / "data" / "mooncake.jsonl")
RULES = '[[rules]]\nname = "later"\nturn = { from = 2 }\nttl_s = 60\n'
GRID = f'traces = ["{TRACE}"]\npolicies = ["lru", "fifo"]\ncapacities = [8, 12]\n'


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder of each command, as it writes it, by command."""
    root = tmp_path_factory.mktemp("runs")
    (root / "rules.toml").write_text(RULES)
    (root / "grid.toml").write_text(GRID)
    small = ["--policies", "lru,belady", "--capacities", "8,12"]
    lines = {
        "compare": ["compare", TRACE, *small, "--why"],
        "compare --rules": ["compare", TRACE, "--policies", "lru", "--capacities", "8"],
        "simulate": ["simulate", TRACE, "--load", "1,2"],
        "plan": ["plan", TRACE, "--policies", "lru,belady", "--bootstrap", "0"],
        "sweep": ["sweep", str(root / "grid.toml")],
    }
    lines["compare --rules"] += ["--rules", str(root / "rules.toml")]
    with pytest.MonkeyPatch.context() as patch:
        for command, words in lines.items():
            words = [*words, "--out", str(root / command)]
            patch.setattr(sys, "argv", ["perc", *words])
            main(words)
    for command in set(ABOUT) - set(lines):
        about = {"command": ["perc", command], "verdict": ["Half."]}
        (root / command).mkdir()
        text = json.dumps(about | {"repeats": 1, "at_once": 8})
        (root / command / "run.json").write_text(text)
        table = pl.DataFrame({"arm": ["stock"], "repeat": [0], "requests": [9]})
        table.write_parquet(root / command / "results.parquet")
    return {command: root / command for command in ABOUT}


def json_of(folder):
    return next(folder / name for name in DESCRIBED if (folder / name).exists())


@pytest.fixture
def copy(runs, tmp_path):
    def made(command):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(runs[command], folder)
        return folder

    return made


@pytest.mark.parametrize("command", ABOUT)
def test_what_a_command_writes_is_read(runs, command):
    run = read_run(runs[command])
    assert run.command == command
    assert page([run]).startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("command", "key"),
    [(c, key) for c, shape in ABOUT.items() for key in shape if key[-1] != "?"],
)
def test_what_is_missing_from_the_json_is_named(copy, command, key):
    folder = copy(command)
    about = json.loads(json_of(folder).read_text())
    del about[key]
    json_of(folder).write_text(json.dumps(about))
    with pytest.raises(InputError, match=f"{key} is missing.*Run the command again"):
        read_run(folder)


@pytest.mark.parametrize(
    ("command", "table", "column"),
    [
        (command, table, column)
        for command, tables in COLUMNS.items()
        for table, columns in tables.items()
        for column in columns
    ],
)
def test_a_column_that_is_missing_or_of_another_kind_is_named(
    copy, command, table, column
):
    path = copy(command) / f"{table}.parquet"
    frame = pl.read_parquet(path)
    of_lists = pl.concat_list(pl.lit(1), pl.lit(2)).alias(column)
    for spoilt, says in (
        (frame.drop(column), f"the column {column} is missing"),
        (frame.with_columns(of_lists), f"{column} has List"),
    ):
        spoilt.write_parquet(path)
        with pytest.raises(InputError, match=f"{path.name}: {says}"):
            read_run(path.parent)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ({"command": 5}, "of no command that a report can show: 5"),
        ({"command": ["perc", "compare", 5]}, r"command\[2\] is 5, must be a text"),
        ({"versions": None}, "versions is null, must be an object"),
        ({"verdict": "x"}, 'verdict is "x", must be a list'),
        ({"trace": {}}, "trace is {}, must be a text, or an object with a source"),
        ({"misses": None}, "misses is null"),
        ({"misses": {"rows": [], "definitions": {}}}, r"misses.rows is \[\], must be"),
        ({"trace_sha256": "\ud800"}, "no JSON that can be read"),
    ],
)
def test_what_is_wrong_in_the_json_is_named(copy, spoil, says):
    folder = copy("compare")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | spoil))
    with pytest.raises(InputError, match=f"run.json: {says}"):
        read_run(folder)


@pytest.mark.parametrize("cause", ["cold", "capacity"])
def test_causes_of_misses_must_be_the_same_everywhere(copy, cause):
    folder = copy("compare")
    about = json.loads((folder / "run.json").read_text())
    meaning = about["misses"]["definitions"].pop(cause)
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=f"misses.definitions.{cause} is missing"):
        read_run(folder)
    about["misses"]["definitions"][cause] = meaning
    del about["misses"]["rows"][1]["misses"][cause]
    (folder / "run.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"misses.rows\[1\].misses has other causes"):
        read_run(folder)


def test_a_pipe_is_not_waited_for(copy):
    folder = copy("compare")
    for name in ("run.json", "results.parquet"):
        os.rename(folder / name, folder / "old")
        os.mkfifo(folder / name)
        with pytest.raises(InputError, match=f"{name}: is no regular file"):
            read_run(folder)
        os.replace(folder / "old", folder / name)
    assert read_run(folder).command == "compare"


def test_links_are_read_only_where_they_may_be(copy, tmp_path):
    folder = copy("compare")
    os.rename(folder / "curves.parquet", tmp_path / "elsewhere")
    (folder / "curves.parquet").symlink_to(tmp_path / "elsewhere")
    assert not read_run(folder).tables["curves"].is_empty()
    with pytest.raises(InputError, match="curves.parquet: is a link"):
        read_run(folder, links=False)


def test_the_command_line_says_it_without_a_traceback(copy, tmp_path, capsys):
    folder = copy("simulate")
    (folder / "run.json").write_text('{"command": ["perc", "simulate"]}')
    with pytest.raises(SystemExit) as end:
        main(["report", str(folder), "--out", str(tmp_path / "page.html")])
    assert end.value.code == 2
    assert "run.json: machine is missing" in capsys.readouterr().err


@given(name=st.text(st.characters(codec=None), max_size=9))
def test_a_name_is_shown_as_text_without_controls(name):
    text = shown(Path(name))
    text.encode()
    assert not any(ord(c) < 32 for c in text)
    if name.isprintable():
        assert text == str(Path(name))


def places(value):
    """Every place in a value, as its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (key,)
            yield from ((key, *more) for more in places(value[key]))


OTHERS = (None, True, -1, 0.5, 1e308, float("nan"), "", "x", [], [1], {}, {"x": 1})


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_stands_in_the_json_there_is_a_page_or_a_reason(copy, data):
    folder = copy(data.draw(st.sampled_from(sorted(ABOUT))))
    about = json.loads(json_of(folder).read_text())
    *path, last = data.draw(st.sampled_from(list(places(about))))
    holder = about
    for key in path:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(OTHERS))
    json_of(folder).write_text(json.dumps(about))
    try:
        run = read_run(folder)
    except InputError as error:
        assert str(folder) in str(error)
        return
    assert run.command == describe(folder)[0]
    assert page([run]).startswith("<!doctype html>")
