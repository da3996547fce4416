"""`load`: the format by content, what is unknown, and arguments out of range."""

import gzip
import importlib
import re
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perc.errors import InputError, TraceWarning
from perc.traces import load, save
from perc.traces.detect import detect_format
from perc.traces.formats import FORMATS, known_formats

SAMPLES = {
    "mooncake": "mooncake.jsonl",
    "blocks": "blocks.jsonl",
    "sessions": "sessions.jsonl",
    "bailian": "bailian.jsonl",
    "ragpulse": "ragpulse",
    "azure": "azure.csv",
}
ODD_VALUES = (
    *("null", "true", "-1", "0", "1.5", "1e999", "NaN", "2147483647", "2147483648"),
    *(str(2**64), "{}", "[]", "[[]]", '""', '"x"', '"\\ud800"', ",", "\n", "\0"),
)


@pytest.mark.parametrize(("format", "sample"), SAMPLES.items())
def test_the_format_is_known_by_the_content(data_folder, write, format, sample):
    path = data_folder / sample
    assert detect_format(str(path)) == format
    if path.is_file():
        hidden = write(gzip.compress(path.read_bytes()), "nameless")
        assert detect_format(hidden) == format


def test_perc_files_are_known_by_their_first_bytes(data_folder, tmp_path):
    save(load(data_folder / "azure.csv"), tmp_path / "t.parquet")
    (tmp_path / "t.parquet").rename(tmp_path / "nameless")
    assert detect_format(str(tmp_path / "nameless")) == "parquet"


def test_every_format_has_a_reader_a_sample_and_a_description():
    assert set(FORMATS) == {*SAMPLES, "parquet"}
    for name in FORMATS:
        assert callable(importlib.import_module(f"perc.traces.{name}").read)
        assert f"{name} " in known_formats()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"prompt": "hello", "time": 3}', "fields prompt, time"),
        ("{}", "fields none"),
        ("a,b,c\n1,2,3", "starts with 'a,b,c'"),
        ("[1, 2]", r"starts with '\[1, 2\]'"),
    ],
)
def test_an_unknown_format_lists_what_is_known(write, content, message):
    with pytest.raises(InputError, match=message) as error:
        load(write(content))
    assert "--format" in str(error.value)
    assert all(name in str(error.value) for name in FORMATS)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "the file is empty"), ('{"timestamp": 1', "line 1: no JSON")],
)
def test_a_file_that_cannot_be_parsed_says_so_instead(write, content, message):
    with pytest.raises(InputError, match=message):
        load(write(content))


@pytest.mark.parametrize(
    "sample", ["mooncake.jsonl", "blocks.jsonl", "sessions.jsonl", "bailian.jsonl"]
)
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_value_is_loaded_or_told_never_a_crash(
    data_folder, write, sample, data
):
    text = (data_folder / sample).read_text()
    values = list(re.finditer(r'-?\d+(\.\d+)?|"[^"]*"|\[[^\]]*\]', text))
    place = data.draw(st.sampled_from(values))
    other = data.draw(st.sampled_from(ODD_VALUES))
    path = write(text[: place.start()] + other + text[place.end() :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        try:
            load(path)
        except InputError as error:
            assert path in str(error)


def test_places_without_a_trace_are_named(tmp_path):
    with pytest.raises(InputError, match="check the path"):
        load(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="a folder without 0_trace.jsonl"):
        load(tmp_path)
    with pytest.raises(InputError, match="is a folder"):
        load(tmp_path, format="mooncake")


def test_arguments_out_of_range(data_folder):
    path = data_folder / "mooncake.jsonl"
    with pytest.raises(InputError, match="--format moon is unknown"):
        load(path, format="moon")
    with pytest.raises(InputError, match="--block-tokens is 0"):
        load(path, block_tokens=0)


def test_a_density_for_a_trace_with_times_changes_nothing_and_says_so(data_folder):
    with pytest.warns(TraceWarning, match="has times of its own"):
        load(data_folder / "mooncake.jsonl", sessions_per_hour=5)


def test_progress_is_reported(data_folder):
    shares: list[float] = []
    load(data_folder / "mooncake.jsonl", progress=shares.append)
    assert shares[-1] == 1.0
