"""`perc compare --out`: the folder that it leaves behind."""

import contextlib
import io
import json
from html.parser import HTMLParser

import polars as pl
import pytest

from perc.cli import main
from tests.cli.conftest import DATA

FILES = [
    "curves.html",
    "curves.parquet",
    "curves.png",
    "groups.parquet",
    "results.parquet",
    "run.json",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder and the JSON of one comparison; the folder did not exist before."""
    folder = tmp_path_factory.mktemp("out") / "deep" / "run"
    out, err = io.StringIO(), io.StringIO()
    flags = ["--policies", "lru,perc_decay:tau_s=60,belady", "--capacities", "0,8,10"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main(
            ["compare", str(DATA / "mooncake.jsonl"), *flags, "--json"]
            + ["--out", str(folder)]
        )
    assert all(str(folder / name) in err.getvalue() for name in FILES)
    return folder, json.loads(out.getvalue())


def test_the_folder_holds_these_files_and_no_leftovers(run):
    assert sorted(path.name for path in run[0].iterdir()) == FILES


def test_results_equal_the_json_rows(run):
    folder, printed = run
    results = pl.read_parquet(folder / "results.parquet")
    low, high = (results[f"block_hit_ratio_{end}"] for end in ("low", "high"))
    assert (
        (low <= results["block_hit_ratio"]) & (results["block_hit_ratio"] <= high)
    ).all()
    assert results.drop(low.name, high.name).to_dicts() == printed["rows"]


def test_groups_sum_to_the_whole(run):
    groups = pl.read_parquet(run[0] / "groups.parquet")
    whole = groups.filter(pl.col("by") == "all")
    assert set(whole["policy"]) == {"lru", "perc_decay:tau_s=60", "belady"}
    for by in set(groups["by"]) - {"all"}:
        parts = groups.filter(by=by, policy="belady", capacity_blocks=10)
        (one,) = whole.filter(policy="belady", capacity_blocks=10).to_dicts()
        assert parts["requests"].sum() == one["requests"]
        assert parts["input_tokens"].sum() == one["input_tokens"]


def test_run_json_holds_what_was_printed_and_how_to_repeat_it(run):
    folder, printed = run
    stored = json.loads((folder / "run.json").read_text())
    interval = stored["definitions"].pop("interval")
    assert "bootstrap over sessions" in interval
    assert {key: stored[key] for key in printed} == printed
    assert stored["schema_version"] == 1
    assert stored["command"][0] == "perc"
    assert set(stored["versions"]) >= {"python", "perc-kv", "jax", "numpy"}
    assert len(stored["trace_sha256"]) == 64


def test_curves_cover_every_policy_up_to_the_whole_working_set(run):
    curves = pl.read_parquet(run[0] / "curves.parquet")
    assert set(curves["policy"]) == {"lru", "perc_decay:tau_s=60", "belady"}
    assert curves["capacity_blocks"].max() == 16
    assert curves["capacity_blocks"].min() == 7  # the longest request


def test_png_is_one(run):
    assert (run[0] / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


class _Loads(HTMLParser):
    """Collects what a browser would fetch for a page."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        names = {"src", "srcset", "data", "poster"} | (
            {"href"} if tag == "link" else set()
        )
        self.found += [f"{tag} {value}" for name, value in attrs if name in names]


def test_html_loads_nothing_from_elsewhere(run):
    page = (run[0] / "curves.html").read_text()
    parser = _Loads()
    parser.feed(page)
    assert parser.found == []
    assert "@import" not in page and "importScripts" not in page
    for word in ("perc_decay:tau_s=60", "belady", "mooncake.jsonl"):
        assert word in page


def test_a_second_run_replaces_the_files(perc, mooncake, tmp_path):
    for capacity in ("8", "9"):
        flags = ("--policies", "lru", "--capacities", capacity, "--out", tmp_path)
        assert perc("compare", mooncake, *flags).code == 0
    assert pl.read_parquet(tmp_path / "results.parquet")["capacity_blocks"].item() == 9
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_an_empty_trace_is_drawn(perc, tmp_path):
    trace, folder = tmp_path / "none.parquet", tmp_path / "run"
    perc("make", "chat", "--requests", "0", "--out", trace)
    said = perc("compare", trace, "--policies", "lru", "--json", "--out", folder)
    assert said.code == 0
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_the_stored_command_repeats_the_run(run):
    folder, printed = run
    command = json.loads((folder / "run.json").read_text())["command"]
    assert command[:2] == ["perc", "compare"]
    assert "--policies" in command and "--warmup" in command


def test_the_causes_are_stored_and_asked_for_again(perc, mooncake, tmp_path):
    flags = ["--policies", "lru", "--capacities", "8", "--why", "--why-by", "turn"]
    perc("compare", mooncake, *flags, "--out", tmp_path)
    stored = json.loads((tmp_path / "run.json").read_text())
    assert {row["group"] for row in stored["misses"]["rows"]} >= {"1", "2"}
    command = stored["command"]
    assert "--why" in command and command[command.index("--why-by") + 1] == "turn"
