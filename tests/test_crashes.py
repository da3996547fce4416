"""Commands that are killed at any moment: nothing torn, the same results afterwards.

    python -m tests.test_crashes --kills 100     kill -9 at work, so often a command

What stands under a final name is whole. The same command, run again to its end, leaves
the files that an undisturbed run leaves, whatever the killed ones left behind.
"""

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import polars as pl
import pytest

from tests.crashes_of_recorder import play_recorder

PERC = Path(sys.executable).with_name("perc")
GRID = """
capacities = [40, 80, 160, 320]
seeds = [0, 1]
[[traces]]
workload = "chat"
requests = 120
[[policies]]
name = "arc"
[[policies]]
name = "perc_decay"
tau_s = [10, 100, 1000]
"""
# Each command, the files that it leaves, and what of them may differ: times and words.
COMMANDS = {
    "make": ["make", "chat", "--requests", "3000", "--out", "made.parquet"],
    "convert": ["convert", "base.parquet", "made.parquet"],
    "compare": ["compare", "base.parquet", "--policies", "lru,perc", "--out", "run"],
    "plan": ["plan", "base.parquet", "--bootstrap", "0", "--out", "run"],
    "report": ["report", "done", "--out", "page.html"],
    "sweep": ["sweep", "@grid.toml", "--out", "run"],
    "train": (
        ["train", "base.parquet", "--steps", "40", "--members", "1", "--checkpoint"]
        + ["part.npz", "--out", "policy.npz"]
    ),
}


def prepare(folder):
    """What the commands read."""
    (folder / "grid.toml").write_text(GRID)
    for words in (
        ["make", "chat", "--requests", "400", "--out", "base.parquet"],
        ["compare", "base.parquet", "--policies", "lru", "--out", "done"],
    ):
        subprocess.run([PERC, *words], cwd=folder, check=True, capture_output=True)


def check_whole(folder):
    """Opens every file under a final name."""
    for path in folder.rglob("*"):
        if not path.is_file() or path.name.startswith("."):
            continue
        if path.suffix == ".parquet":
            pl.read_parquet(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".npz":
            assert zipfile.ZipFile(path).testzip() is None
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        elif path.suffix == ".png":
            assert path.read_bytes()[-8:-4] == b"IEND"


def contents(folder):
    """What the files of a folder say, by name; half files of killed runs left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith("."):
            continue
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".parquet":
            found[name] = pl.read_parquet(path).to_dict(as_series=False)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def run(words, folder, *, kill_after_s=None):
    """Seconds that a command took; None if it was killed at work."""
    start = time.monotonic()
    process = subprocess.Popen(
        [PERC, *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate(timeout=kill_after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        if process.returncode == -signal.SIGKILL:
            return None
    assert process.returncode == 0, said
    return time.monotonic() - start


def play(name, kills, base, seed=0):
    """Kills a command at work so often, then lets it end; how many kills struck.

    A kill that comes too late is tried again, up to four times as many in all.
    """
    rng = random.Random(f"{name} {seed}")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        quiet, killed = Path(one), Path(two)
        for folder in (quiet, killed):
            shutil.copytree(base, folder, dirs_exist_ok=True)
        whole_s = run(COMMANDS[name], quiet)
        assert whole_s is not None
        struck = tried = 0
        fresh = True  # nothing of an earlier run that this one goes on from
        while struck < kills and tried < 4 * kills:
            after_s = rng.uniform(0.2, 1.0) * whole_s
            took_s = run(COMMANDS[name], killed, kill_after_s=after_s)
            check_whole(killed)
            tried += 1
            struck += took_s is None
            if took_s is None:
                fresh = False
            else:  # nothing is left to be killed at: begin anew
                if fresh:
                    whole_s = min(whole_s, took_s)  # the machine was busier before
                fresh = True
                assert contents(killed) == contents(quiet), name
                shutil.rmtree(killed)
                shutil.copytree(base, killed)
        run(COMMANDS[name], killed)
        check_whole(killed)
        assert contents(killed) == contents(quiet), name
    return struck


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    prepare(folder)
    return folder


@pytest.mark.parametrize("name", ["sweep", "train"])
def test_a_killed_command_leaves_nothing_torn_and_goes_on(name, base):
    assert play(name, 1, base) == 1


@pytest.mark.slow
def test_a_recorder_stands_many_kills():
    assert play_recorder(PERC, 15) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_many_kills(name, base):
    assert play(name, 15, base) == 15


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=15, help="of each command")
    parser.add_argument("--seed", type=int, default=0)
    names = [*COMMANDS, "record"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        prepare(Path(made))
        total = 0
        for command in given.only:
            if command == "record":
                struck = play_recorder(PERC, given.kills, given.seed)
            else:
                struck = play(command, given.kills, Path(made), given.seed)
            total += struck
            print(f"{command:<8} {struck} of {given.kills} kills struck it at work")
    print(f"{total} kills: nothing torn, results the same")
