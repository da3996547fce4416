"""`perc sweep`: from a grid to a table, with a way back after an interrupt."""

import os
import pty
import signal
import time
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest

from tests.cli.conftest import Run, start

command = import_module("perc.cli.sweep")
GRID = """
capacities = [0.05, 200]
[[traces]]
workload = "chat"
requests = 300
[[policies]]
name = "belady"
[[policies]]
name = "perc_decay"
tau_s = [10, 200]
"""
LONG = """
capacities = [0.05]
[[traces]]
workload = "chat"
requests = 2000
[[policies]]
name = "perc_decay"
tau_s = { low = 1, high = 2000, scale = "log", samples = 20_000 }
"""


@pytest.fixture
def grid(tmp_path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.mark.parametrize("mark", ["@", ""])
def test_a_grid_becomes_a_table_and_a_file(perc: Run, grid, tmp_path, mark):
    said = perc("sweep", f"{mark}{grid}", "--out", tmp_path / "out")
    assert said.code == 0, said.err
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert table["tau_s"].to_list() == [None, None, 10, 10, 200, 200]
    assert "3 configurations at 2 capacities: 6 rows" in said.words
    assert str(tmp_path / "out" / "results.parquet") in said.out
    assert "perc tune" in said.words and "looks better than it is" in said.words
    assert "Next: python -c" in said.words and "done in" in said.err


def test_the_best_is_shown_beside_lru_and_the_bound(perc: Run, grid, tmp_path):
    said = perc("sweep", grid, "--out", tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "results.parquet")
    for size in table["capacity_blocks"].unique():
        at = table.filter(capacity_blocks=size, policy="perc_decay")
        best = at.sort("block_hit_ratio").row(-1, named=True)
        for name in ("block", "lru_block", "bound_block"):
            assert f"{best[f'{name}_hit_ratio']:.2%}" in said.out
    shown = said.out.split("The best of")[0]
    assert "perc_decay:tau_s=" in shown and "belady" not in shown
    lines = said.out.splitlines()
    assert max(len(line.rstrip()) for line in lines if "parquet" not in line) <= 80


def test_the_same_command_again_answers_from_the_folder(perc: Run, grid, tmp_path):
    first = perc("sweep", grid, "--out", tmp_path / "out")
    grown = tmp_path.joinpath("out", "results.parquet").stat().st_mtime_ns
    assert perc("sweep", grid, "--out", tmp_path / "out").out == first.out
    assert tmp_path.joinpath("out", "results.parquet").stat().st_mtime_ns == grown


def test_bad_input_is_refused_before_any_work(refused: Run, grid, tmp_path):
    assert "no such file" in refused("sweep", "@no.toml", "--out", tmp_path).err.lower()
    assert "--out" in refused("sweep", grid).words
    words = refused("sweep", grid, "--out", tmp_path / "o", "--engine", "spark").words
    assert "local" in words
    grid.write_text(GRID.replace("tau_s", "tau"))
    said = refused("sweep", grid, "--out", tmp_path / "out")
    assert "grid.toml: policies[1], perc_decay, has no 'tau'" in said.words
    assert not (tmp_path / "out").exists()


def test_another_grid_in_the_folder_is_refused(perc: Run, refused: Run, grid, tmp_path):
    perc("sweep", grid, "--out", tmp_path / "out")
    grid.write_text(GRID.replace("200]", "300]", 1))
    assert "of another grid" in refused("sweep", grid, "--out", tmp_path / "out").words


def test_ctrl_c_says_how_to_go_on(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(LONG)
    process = start("sweep", path, "--out", tmp_path / "out")
    while process.poll() is None and not list(tmp_path.glob("out/parts/*.parquet")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == ""
    assert f"kept in {tmp_path / 'out'}; the same command goes on there" in err
    assert err.endswith("perc: interrupted\n") and "Traceback" not in err
    assert list(tmp_path.glob("out/parts/*.parquet"))


def test_a_terminal_shows_a_bar_with_rate_and_time_left(grid, tmp_path):
    ours, theirs = pty.openpty()
    process = start("sweep", grid, "--out", tmp_path / "out", stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"sweeping" in seen and b"3/3" in seen
    assert b"a second" in seen and b"left" in seen


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    with command.sweep_progress() as progress:
        for done in range(100, 106):
            progress(done, 1000, "chat")
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3
    assert lines[-1].startswith("10") and "of 1,000 configurations, 0." in lines[-1]
    assert " a second, " in lines[-1] and lines[-1].endswith(" left")


def test_help_shows_a_grid_and_the_engines(perc: Run):
    said = perc("sweep", "--help")
    assert said.code == 0
    for word in ("@GRID.toml", "--out", "--engine", "--workers", "[[policies]]"):
        assert word in said.words
    assert "sweep" in perc("--help").words
