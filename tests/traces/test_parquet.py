"""perc's own file: what is written is read back, and nothing else is."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perc.errors import InputError
from perc.traces import load, save
from perc.traces.build import Columns, build_trace
from perc.traces.parquet import METADATA_KEY
from perc.types import Trace


def assert_same(a: Trace, b: Trace) -> None:
    for field in dataclasses.fields(Trace):
        x, y = getattr(a, field.name), getattr(b, field.name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype, field.name
            assert np.array_equal(x, y), field.name
        else:
            assert x == y, field.name


def small_trace(rows=((1, 2, 3), (), (1, 2)), **fields) -> Trace:
    n = len(rows)
    lengths = np.array([len(row) for row in rows], np.int64)
    columns = Columns(
        arrival_s=np.arange(n) / 3,
        input_tokens=lengths * 4,
        output_tokens=np.arange(n) + 1,
        ids=np.array([x for row in rows for x in row], np.int64),
        lengths=lengths,
        **fields,
    )
    return build_trace(columns, block_tokens=4, source="a test", chained=False)


@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=6), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_field_survives(tmp_path, rows, data):
    n = len(rows)
    whole = st.lists(st.integers(-5, 5), min_size=n, max_size=n)
    fields = {}
    if data.draw(st.booleans()):
        fields = dict(
            session=data.draw(whole),
            kind=[f"kind {k}" for k in data.draw(whole)],
            priority=np.array(data.draw(whole), np.int64),
            deadline_s=np.array([np.inf, 0.1, 2.5] * n)[:n],
        )
    trace = small_trace(rows, **fields)
    save(trace, tmp_path / "t.parquet")
    assert_same(load(tmp_path / "t.parquet"), trace)


def test_the_sample_survives(data_folder, tmp_path):
    trace = load(data_folder / "blocks.jsonl")
    save(trace, tmp_path / "t.parquet")
    assert_same(load(tmp_path / "t.parquet"), trace)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "t.parquet"
    for rows in (((1, 2),), ((5,), (6,))):
        save(small_trace(rows), path)
    assert load(path).n_requests == 2


@pytest.mark.parametrize("name", ["t.jsonl", "t", "parquet"])
def test_a_name_that_promises_another_format_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="end the name in .parquet"):
        save(small_trace(), tmp_path / name)


def test_a_folder_that_is_not_there_is_made(tmp_path):
    save(small_trace(), tmp_path / "new" / "t.parquet")
    assert load(tmp_path / "new" / "t.parquet").n_requests == 3


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file.*choose another folder"):
        save(small_trace(), tmp_path / "file" / "t.parquet")


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"block": [1, 2]}).write_parquet(path)
    with pytest.raises(InputError, match="no trace that perc wrote"):
        load(path)


def test_newer_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    facts = json.dumps({"version": 2})
    pl.DataFrame({"a": [1]}).write_parquet(path, metadata={METADATA_KEY: facts})
    with pytest.raises(InputError, match="schema version 2, this perc reads 1"):
        load(path)


@pytest.mark.parametrize("facts", ["{", "[]", "{}"])
def test_damaged_metadata_is_told(tmp_path, facts):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(path, metadata={METADATA_KEY: facts})
    with pytest.raises(InputError, match="metadata is damaged"):
        load(path)


def test_cut_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    save(small_trace(), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be read as parquet"):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop("turn"), "turn"),
        (lambda table: table.with_columns(pl.col("turn").cast(pl.Int64)), "int64"),
        (
            lambda table: table.with_columns(tokens=pl.col("tokens").list.head(1)),
            "sha256",
        ),
        (lambda table: table.reverse(), "sha256"),
        (lambda table: table.with_columns(kind=pl.col("kind") + 1), "sha256"),
    ],
    ids=["column gone", "other type", "lists differ", "other order", "other kind"],
)
def test_changed_files_are_refused(tmp_path, change, message):
    path = tmp_path / "t.parquet"
    save(small_trace(((1, 2), (3,))), path)
    metadata = {METADATA_KEY: pl.read_parquet_metadata(path)[METADATA_KEY]}
    change(pl.read_parquet(path)).write_parquet(path, metadata=metadata)
    with pytest.raises(InputError, match=f"not as perc wrote it.*{message}"):
        load(path)


def test_blocks_are_not_cut_again(tmp_path):
    path = tmp_path / "t.parquet"
    save(small_trace(), path)
    with pytest.raises(InputError, match="blocks of 4 tokens, not 8"):
        load(path, block_tokens=8)
    assert load(path, block_tokens=4).block_tokens == 4
