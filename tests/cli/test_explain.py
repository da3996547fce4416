"""`perc explain`: the tables, JSON, charts, and what is refused."""

import json
from dataclasses import replace

import pytest

import perc as perc_package
from perc.cli.explain import seen_in_training
from perc.cli.train import describe
from perc.history import NAMES
from perc.policies import store
from perc.policies.store import save, save_named
from perc.train.fit import fit
from perc.train.settings import Settings
from perc.tune_search import first_requests
from tests.cli.conftest import DATA

KEYS = [
    "trace",
    "definitions",
    "capacity_blocks",
    "block_hit_ratio",
    "lru",
    "bound",
    "guard",
    "inputs",
    "dependence",
    "won",
    "lost",
    "notes",
]
SMALL = ("--capacity", 200, "--repeats", 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """chat.parquet, and mine.npz that learned from its first half."""
    folder = tmp_path_factory.mktemp("explained")
    trace = perc_package.make("chat", requests=300, sessions_per_s=0.05)
    perc_package.save(trace, folder / "chat.parquet")
    half = first_requests(perc_package.load(folder / "chat.parquet"), 150)
    settings = Settings(steps=40, members=1, classes=6, batch=256)
    policy = fit(half, "imitation", settings=settings)
    about = describe(half, "imitation", settings, None)
    save(folder / "mine.npz", policy, about=about)
    return folder


@pytest.fixture
def asked(folder):
    return ("explain", folder / "mine.npz", folder / "chat.parquet", *SMALL)


def test_json_is_one_object_of_the_promised_keys(perc, asked):
    said = perc(*asked, "--warmup", 0.5, "--top", 3, "--json")
    assert said.code == 0 and "done in" in said.err
    found = json.loads(said.out)
    assert list(found) == KEYS
    assert {row["input"] for row in found["inputs"]} == set(NAMES)
    assert len(found["dependence"]) == 3 and found["capacity_blocks"] == 200
    assert found["lost"] and found["won"]
    assert set(found["guard"]) == {"stored", "block_hit_ratio", "trusted"}


def test_the_same_flags_give_the_same_answer(perc, asked):
    one, same, other = (perc(*asked, "--seed", s, "--json").out for s in (1, 1, 2))
    assert one == same != other


def test_the_tables_tell_the_story(perc, asked):
    said = perc(*asked, "--warmup", 0.5)
    assert said.code == 0
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= 80
    assert "…" not in said.out
    for words in (
        "At 200 blocks LRU hits",
        "With its guard it hits",
        "Missed in every shuffle: ",
        "The same in the whole trace: tools, ended.",
        "if it were",
        "Largest gains over LRU:",
        "Largest losses to LRU:",
        "hits per block and minute, more than",
    ):
        assert words in said.words


@pytest.mark.parametrize(
    "warmup, note",
    [
        (0.2, "of which some are counted. Count the others alone with --warmup 0.5."),
        (0.5, "none of which is counted."),
    ],
)
def test_it_says_what_it_was_trained_on(perc, asked, warmup, note):
    said = perc(*asked, "--warmup", warmup, "--top", 0)
    assert f"note: trained on the first 150 requests, {note}" in said.words


def test_training_requests_are_known_by_their_content(folder):
    header = store.describe(folder / "mine.npz")
    whole = perc_package.load(folder / "chat.parquet")
    assert seen_in_training(header, whole) == 150
    assert seen_in_training(header, first_requests(whole, 150)) == 150
    assert seen_in_training(header, first_requests(whole, 149)) == 0
    other = replace(whole, arrival_s=whole.arrival_s + 1.0)
    assert seen_in_training(header, other) == 0
    for strange in ({}, {"requests": "all"}, {"requests": True}, {"requests": -1}):
        assert seen_in_training(replace(header, about=strange), whole) == 0


@pytest.mark.parametrize(
    "suffix, first", [(".png", b"\x89PNG"), (".svg", b"<svg"), (".html", b"<!DOCTYPE")]
)
def test_the_picture_is_written(perc, asked, tmp_path, suffix, first):
    out = tmp_path / "deep" / f"why{suffix}"
    said = perc(*asked, "--out", out, "--top", 2)
    assert said.code == 0 and f"wrote {out}" in said.err
    data = out.read_bytes()
    assert data.lstrip().startswith(first) and len(data) > 5_000
    assert list(out.parent.iterdir()) == [out]


def test_no_inputs_are_shown_if_none_are_asked_for(perc, asked, tmp_path):
    said = perc(*asked, "--top", 0, "--out", tmp_path / "why.svg")
    assert said.code == 0 and "if it were" not in said.out


def test_a_cache_that_holds_everything(perc, asked):
    said = perc(*asked[:3], "--capacity", "100%", "--repeats", 1)
    assert said.code == 0 and "nothing has to leave" in said.words
    assert "No counted request was served otherwise than by LRU." in said.words


# Refused.


def test_only_learned_policies_are_explained(refused, tmp_path):
    path = save_named(tmp_path / "decay.npz", "perc_decay")
    said = refused("explain", path, "gone.jsonl").words
    assert f"{path}: holds perc_decay, which was not learned" in said
    assert "only learned policies can be explained" in said and "gone" not in said


def test_a_name_is_no_file(refused):
    for name in ("lru", "perc_decay:tau_s=60"):
        said = refused("explain", name, "gone.jsonl").words
        assert f"{name} is a policy of the registry" in said
        assert "only learned ones can be explained" in said


def test_a_file_that_is_not_there(refused):
    assert "gone.npz: no such file" in refused("explain", "gone.npz", "x.jsonl").words


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--capacity", "1,2"], "--capacity 1,2: give one"),
        (["--capacity", "x"], "'x' is no capacity"),
        (["--out", "why.pdf"], "must end in one of .html, .png, .svg"),
        (["--out", "folder.svg"], "--out folder.svg is a folder"),
    ],
)
def test_flags_are_checked_before_the_trace(
    refused, folder, tmp_path, monkeypatch, flags, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    answer = refused("explain", folder / "mine.npz", "no-such.jsonl", *flags)
    assert said in answer.words and "no-such" not in answer.words


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--capacity", "0"], "holds none"),
        (["--top", "99"], "top is 99"),
        (["--repeats", "0"], "repeats is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--warmup", "1"], "a warm-up share of 1"),
    ],
)
def test_settings_out_of_range(refused, asked, flags, said):
    assert said in refused(*asked, *flags).words


def test_traces_without_blocks(refused, folder, tmp_path):
    said = refused("explain", folder / "mine.npz", DATA / "azure.csv").words
    assert "azure.csv has no block ids" in said
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert "is empty" in refused("explain", folder / "mine.npz", empty).words


def test_help_explains_the_flags(perc):
    said = perc("explain", "--help")
    assert said.code == 0
    for word in ("POLICY.npz", "--capacity", "--top", ".html, .png or .svg"):
        assert word in said.words
    assert "explain" in perc("--help").words
