"""`perc make`: what the commands take, write and say."""

import inspect

import numpy as np
import pytest
import tyro

from perc.cli.make import commands
from perc.traces import load
from perc.workloads import chat, generators


def run(*args: str) -> None:
    tyro.extras.subcommand_cli_from_dict(commands, args=args)


def test_writes_what_the_generator_makes(tmp_path, capsys):
    out = tmp_path / "chat.parquet"
    run("chat", "--requests", "50", "--seed", "1", "--out", str(out))
    expected, read = chat(requests=50, seed=1), load(out)
    assert np.array_equal(read.block, expected.block)
    assert np.array_equal(read.session, expected.session)
    said = capsys.readouterr().out
    assert "chat(requests=50, seed=1)" in said
    assert "50 requests" in said and "perc compare" in said.replace("\n", "")


def test_an_empty_trace_can_be_made(tmp_path, capsys):
    run("zipf", "--requests", "0", "--out", str(tmp_path / "none.parquet"))
    assert "0 requests of 0 sessions" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(generators))
def test_help_explains_every_parameter(name, capsys):
    with pytest.raises(SystemExit):
        run(name, "--help")
    said = capsys.readouterr().out
    for parameter in inspect.signature(generators[name]).parameters:
        assert "--" + parameter.replace("_", "-") in said
    assert "file to write" in said
