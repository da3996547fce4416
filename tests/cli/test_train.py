"""`perc train`: the file, the judgement, the next command, and what is refused."""

import contextlib
import io
import json
import shlex
import tempfile

import pytest

import perc as perc_package
from perc.cli import main
from perc.policies.learned import network_of
from perc.policies.store import describe, load
from perc.traces.hashing import hash_of
from perc.train.checkpoint import Checkpoint
from perc.train.fit import fit
from perc.train.settings import Settings
from perc.tune_search import first_requests
from tests.cli.conftest import DATA

QUICK = ("--steps", 100, "--members", 1, "--classes", 4, "--batch", 256)
QUICK += ("--held-out", 0)  # as many examples for every seed: compiled once


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A file of chat whose sessions return."""
    path = tmp_path_factory.mktemp("traces") / "chat.parquet"
    trace = perc_package.make("chat", requests=300, sessions_per_s=0.05)
    perc_package.save(trace, path)
    return path


@pytest.fixture(scope="module")
def trained(chat, tmp_path_factory):
    """The file that `perc train --json` wrote, and what it said."""
    path = tmp_path_factory.mktemp("trained") / "mine.npz"
    words = ["train", chat, "--out", path, *QUICK, "--seed", 3, "--json"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main([str(word) for word in words])
    assert f"wrote {path}" in err.getvalue() and "done in" in err.getvalue()
    return path, json.loads(out.getvalue())


def test_the_file_says_how_it_was_trained(chat, trained):
    path, said = trained
    about = describe(path).about
    trace = perc_package.load(chat)
    assert about["method"] == "imitation" and about["seed"] == 3
    assert about["requests"] == 150
    assert about["trace_sha256"] == hash_of(first_requests(trace, 150))
    assert about["trace"] == trace.source and about["kinds"] == list(trace.kinds)
    wanted = {
        "steps": 100,
        "members": 1,
        "classes": 4,
        "batch": 256,
        "hidden": [32, 32],
    }
    assert wanted.items() <= about["settings"].items()
    assert isinstance(about["held_out_score"], float)
    assert said["about"] == about
    assert network_of(load(path)) and describe(path).settings["guard"]


def test_it_is_what_fit_learns_from_the_first_requests(chat, trained):
    part = first_requests(perc_package.load(chat), 150)
    settings = Settings(
        steps=100, members=1, classes=4, batch=256, held_out=0.0, seed=3
    )
    wanted = fit(part, "imitation", settings=settings)
    assert network_of(load(trained[0])) == network_of(wanted)


def test_json_is_one_object_of_the_promised_keys(trained):
    path, found = trained
    assert list(found) == ["policy", "about", "judged", "verdict", "next"]
    assert found["policy"] == str(path)
    names = [row["policy"] for row in found["judged"]["rows"]]
    assert names == ["lru", "perc", "mine", "belady"] * 5
    assert "requests 151 to 300" in found["judged"]["definitions"]["counted"]


def test_the_next_command_gives_the_same_table(
    perc, chat, trained, tmp_path, monkeypatch
):
    monkeypatch.setattr("perc.train.fit.fit", lambda *given, **more: load(trained[0]))
    flags = ("train", chat, "--out", tmp_path / "mine.npz", *QUICK, "--train", 0.4)
    flags += ("--start-seed", 7)
    found = json.loads(perc(*flags, "--json").out)
    words = shlex.split(found["next"])
    assert words[:2] == ["perc", "compare"] and words[-2:] == ["--start-seed", "7"]
    again = json.loads(perc(*words[1:], "--json").out)
    assert again == found["judged"]


def test_the_table_says_where_it_won_and_lost(perc, chat, tmp_path):
    said = perc("train", chat, "--out", tmp_path / "mine.npz", *QUICK)
    lines = said.out.splitlines()
    assert max(len(line.rstrip()) for line in lines[:-1]) <= 80
    assert "learned by imitation from the first 150 of 300 requests" in said.words
    assert "held-out score" in said.words and "belady*" in said.out
    assert "mine " in said.words and " lru at" in said.words
    assert "of the gap between LRU and the bound" in said.words
    assert lines[-1].startswith("Next: perc compare ")


def test_the_same_command_writes_the_same_bytes(perc, chat, trained, tmp_path):
    again, other = tmp_path / "again.npz", tmp_path / "other.npz"
    for path, seed in ((again, 3), (other, 4)):
        assert perc("train", chat, "--out", path, *QUICK, "--seed", seed).code == 0
    assert again.read_bytes() == trained[0].read_bytes() != other.read_bytes()


def test_another_method(perc, chat, tmp_path):
    out = tmp_path / "mine.npz"
    said = perc("train", chat, "--out", out, "--method", "ttl", "--train", 1, *QUICK)
    assert said.code == 0 and "learned by ttl from the first 300" in said.words
    assert describe(out).about["method"] == "ttl"
    assert describe(out).settings["head"] == "lease"


def test_all_of_the_trace_leaves_nothing_to_judge_on(perc, chat, tmp_path):
    flags = ("train", chat, "--out", tmp_path / "mine.npz", *QUICK, "--train", 1)
    found = json.loads(perc(*flags, "--json").out)
    assert found["judged"] is None and found["about"]["requests"] == 300
    assert found["verdict"][0].startswith("Nothing is left to judge it on")
    assert "OTHER_TRACE" in found["next"] and "--warmup" not in found["next"]


def test_settings_reach_the_network(perc, chat, tmp_path):
    out = tmp_path / "mine.npz"
    perc(
        "train",
        chat,
        "--out",
        out,
        *QUICK,
        "--hidden",
        "8,4,2",
        "--no-guard",
        "--train",
        1,
    )
    header, network = describe(out), network_of(load(out))
    assert network and header.settings["guard"] is None
    assert [w.shape[2] for w, _ in network.layers[:-1]] == [8, 4, 2]
    assert len(network.worths) <= 4


# Interrupted.


def test_ctrl_c_keeps_a_checkpoint_from_which_it_goes_on(
    perc, chat, tmp_path, monkeypatch
):
    whole, part, saved = (tmp_path / n for n in ("whole.npz", "part.npz", "saved"))
    perc("train", chat, "--out", whole, *QUICK, "--train", 1)
    command = ("train", chat, "--out", part, *QUICK, "--checkpoint", saved)
    command += ("--train", 1)
    write = Checkpoint.write

    def write_and_stop(self, *given):
        write(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", write_and_stop)
        said = perc(*command)
    assert said.code == 130 and said.out == "" and not part.exists()
    assert f"perc: the same command goes on from {saved}\n" in said.err
    assert perc(*command).code == 0
    assert part.read_bytes() == whole.read_bytes()
    assert perc(*command).code == 0  # nothing is left to do
    assert part.read_bytes() == whole.read_bytes()


def test_ctrl_c_without_a_checkpoint(perc, chat, tmp_path, monkeypatch):
    def stop(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("perc.train.fit.fit", stop)
    out, saved = tmp_path / "mine.npz", tmp_path / "saved"
    said = perc("train", chat, "--out", out, *QUICK)
    assert said.code == 130 and said.out == "" and not out.exists()
    assert "nothing is kept; with --checkpoint FILE training could go on" in said.words
    said = perc("train", chat, "--out", out, *QUICK, "--checkpoint", saved)
    assert f"stopped before {saved} was first written" in said.words


# Refused.


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--out", "mine.pkl"], "--out mine.pkl: a policy file ends in .npz"),
        (["--out", "mine.npz", "--method", "magic"], "--method 'magic' is none of"),
        (["--out", "mine.npz", "--train", "0"], "--train 0 is no share"),
        (["--out", "mine.npz", "--train", "1.5"], "--train 1.5 is no share"),
        (["--out", "mine.npz", "--train", "nan"], "--train nan is no share"),
        (["--out", "mine.npz", "--steps", "-1"], "steps is -1"),
        (["--out", "mine.npz", "--classes", "0"], "classes is 0"),
        (["--out", "mine.npz", "--rate", "nan"], "rate is nan"),
        (["--out", "mine.npz", "--hidden", "a"], "--hidden 'a': give whole numbers"),
        (["--out", "mine.npz", "--checkpoint", "mine.npz"], "is --out too"),
        (["--out", "mine.npz", "--checkpoint", "."], "is a folder"),
        (["--out", "mine.npz", "--hidden", "4096,4096"], "fit into a policy file"),
        (["--out", "gone/x.jsonl/mine.npz"], "--out gone/x.jsonl/mine.npz: no file"),
        (["--out", "folder.npz"], "--out folder.npz is a folder"),
    ],
)
def test_flags_are_checked_before_the_trace(
    refused, tmp_path, monkeypatch, flags, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "x.jsonl").write_text("a file, no folder")
    (tmp_path / "folder.npz").mkdir()
    answer = refused("train", "no-such.jsonl", *flags)
    assert said in answer.words and "no-such" not in answer.words


@pytest.mark.parametrize("flag", ["--out", "--checkpoint"])
def test_a_folder_that_takes_no_file(refused, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)

    (tmp_path / "locked").mkdir()

    def probe(**given):
        if given["dir"].name == "locked":
            raise PermissionError(13, "Permission denied")
        return make(**given)

    make = tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", probe)
    flags = {"--out": "mine.npz", flag: "locked/file.npz"}
    words = [word for pair in flags.items() for word in pair]
    answer = refused("train", "no-such.jsonl", *words)
    assert f"{flag} locked/file.npz: no file can be written into locked" in answer.words
    assert "choose another folder" in answer.words


def test_out_is_required(perc, chat):
    said = perc("train", chat)
    assert said.code == 2 and "--out" in said.words


@pytest.mark.parametrize(
    "name, said",
    [
        ("azure.csv", "has no block ids"),
        ("mooncake.jsonl", "is none; give a larger share"),
    ],
)
def test_traces_that_cannot_teach(refused, tmp_path, name, said):
    flags = ("--out", tmp_path / "mine.npz", *QUICK, "--train", 0.01)
    assert said in refused("train", DATA / name, *flags).words
    assert not (tmp_path / "mine.npz").exists()


def test_a_part_without_a_second_use(refused, mooncake, tmp_path):
    flags = ("--out", tmp_path / "mine.npz", *QUICK, "--train", 0.1)
    assert "no block is used twice" in refused("train", mooncake, *flags).words


def test_a_checkpoint_of_other_training(perc, refused, chat, tmp_path):
    saved, out = tmp_path / "saved", tmp_path / "mine.npz"
    flags = ("train", chat, "--out", out, *QUICK, "--checkpoint", saved)
    flags += ("--train", 1)
    assert perc(*flags).code == 0
    assert f"{saved}: is a checkpoint of another" in refused(*flags, "--seed", 9).words


def test_help_explains_the_flags(perc):
    said = perc("train", "--help")
    assert said.code == 0
    for word in ("--method", "imitation, ttl, reinforce or evolution", "--checkpoint"):
        assert word in said.words
    assert "train" in perc("--help").words
