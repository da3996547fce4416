"""A run as a folder: whole files only, and a digest of the traffic."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import perc
from perc.capacities import log_grid
from perc.compare import Comparison, compare
from perc.errors import InputError
from perc.files import write_atomically
from perc.policies.registry import registry
from perc.report import run_folder
from perc.report.run_folder import CURVE_POINTS, write_run


def test_a_writer_that_raises_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "results.txt"
    path.write_text("old")

    def half(temporary):
        temporary.write_text("ne")
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_works_beside_the_file_under_its_suffix(tmp_path):
    path = tmp_path / "new" / "chart.png"
    seen = []

    def write(temporary):
        seen.append(temporary)
        assert not path.exists()
        temporary.write_bytes(b"png")

    assert write_atomically(path, write) == path
    assert path.read_bytes() == b"png"
    assert seen[0].parent == path.parent and seen[0].suffix == ".png"
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="run/run.json: .*choose another folder"):
        write_atomically(tmp_path / "run" / "run.json", lambda path: None)


def test_log_grid_climb_from_the_longest_request_to_everything(small_chat):
    sizes = log_grid(small_chat, CURVE_POINTS)
    assert sizes[0] == small_chat.longest_request
    assert sizes[-1] == small_chat.n_blocks
    assert sizes == sorted(set(sizes)) and 20 <= len(sizes) <= 24
    steps = np.diff(np.log(sizes))
    assert steps.max() < 2 * steps.min() + 0.1  # even on a logarithmic axis


def test_log_grid_of_tiny_traces():
    assert log_grid(perc.make("chat", requests=0), 9) == [1]
    one = perc.make("zipf", requests=1)
    assert log_grid(one, 9) == [one.n_blocks]


def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(
    small_chat, tmp_path, monkeypatch
):
    def work(*args, **kwargs):
        raise AssertionError("worked before looking at the folder")

    result = compare(small_chat, ["lru"], [100])
    monkeypatch.setattr(run_folder, "run_compare", work)
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="choose another folder"):
        write_run(
            tmp_path / "run", result, small_chat, (), command=["perc"], warmup=0.0
        )


def test_many_rows_without_a_gap_come_before_one_with_a_gap(
    comparison, small_chat, tmp_path
):
    result: Comparison = comparison([0] * 200, range(150), lru=[0] * 150)
    result.rows[-1] = dataclasses.replace(result.rows[-1], gap_closed=0.5)
    lru = registry["lru"]()
    write_run(tmp_path, result, small_chat, [lru], command=["perc"], warmup=0.0)
    table = pl.read_parquet(tmp_path / "results.parquet")
    assert table["gap_closed"].to_list() == [None] * 149 + [0.5]
