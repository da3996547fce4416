"""`perc inspect` and `perc convert`, called as functions and through tyro."""

import json

import pytest
import tyro

from perc.cli.convert import convert
from perc.cli.inspect import inspect_trace
from perc.errors import InputError, TraceWarning
from perc.traces import load
from perc.traces.formats import FORMATS

COMMANDS = {"inspect": inspect_trace, "convert": convert}


def run(*arguments: object) -> None:
    tyro.extras.subcommand_cli_from_dict(COMMANDS, args=[str(x) for x in arguments])


def test_inspect_prints_tables(data_folder, capsys):
    run("inspect", data_folder / "blocks.jsonl")
    printed = capsys.readouterr()
    assert "distinct blocks" in printed.out
    assert "tool_use" in printed.out
    assert not printed.err


def test_inspect_of_lengths_only_has_no_data_to_show(data_folder, capsys):
    run("inspect", data_folder / "azure.csv")
    assert "no data" in capsys.readouterr().out


def test_inspect_prints_one_json_object(data_folder, capsys):
    run("inspect", data_folder / "mooncake.jsonl", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["requests"] == 10
    assert facts["blocks"] == 16


def test_flags_reach_the_reader(data_folder, tmp_path, capsys):
    flags = ("--format", "sessions", "--sessions-per-hour", 90, "--start-seed", 5)
    with pytest.warns(TraceWarning) as caught:
        run("inspect", data_folder / "sessions.jsonl", *flags)
    assert "over 0.1 h (--sessions-per-hour), seed 5" in str(caught[0].message)
    with pytest.raises(InputError, match="make"):
        run("inspect", data_folder / "mooncake.jsonl", "--block-tokens", 16)


def test_convert_writes_what_load_reads(data_folder, tmp_path, capsys):
    target = tmp_path / "t.parquet"
    run("convert", data_folder / "mooncake.jsonl", target)
    assert "10 requests, 35 accesses of 16 distinct" in capsys.readouterr().out
    assert load(target).n_accesses == 35


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_formats(command, capsys):
    with pytest.raises(SystemExit):
        run(command, "--help")
    printed = capsys.readouterr().out
    assert all(name in printed for name in FORMATS)
    assert "--block-tokens" in printed
