"""Output that cannot be written: a full disk, a closed pipe, no folder, no terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PERC = Path(sys.executable).with_name("perc")
SMALL = ["make", "chat", "--requests", "20", "--out"]


def run(words, **streams):
    given = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([PERC, *map(str, words)], text=True, timeout=120, **given)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line():
    with open("/dev/full", "w") as full:
        done = run(["policies"], stdout=full)
    assert done.returncode == 1
    assert done.stderr.strip() == "perc: [Errno 28] No space left on device"


def test_a_reader_that_has_seen_enough_ends_it_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = run(["policies"], stdout=closed)
    assert done.stderr == "" and done.returncode in (0, 1)


@pytest.mark.parametrize("out", ["/proc/none/x.parquet", "/dev/null/x.parquet"])
def test_a_folder_that_takes_no_files_is_named_before_the_work(out):
    done = run([*SMALL, out], stdout=subprocess.PIPE)
    assert done.returncode == 2
    assert str(Path(out).parent) in done.stderr and "Traceback" not in done.stderr


def test_without_a_terminal_no_bar_moves(tmp_path):
    done = run([*SMALL, tmp_path / "x.parquet"], stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stderr
