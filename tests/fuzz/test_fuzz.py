"""A few hostile files for every reader, the same each time; `__main__` tries more."""

from pathlib import Path
from random import Random

import pytest

from perc.errors import InputError
from tests.fuzz import words
from tests.fuzz.attempt import attempt
from tests.fuzz.campaign import Plan, fuzz, run
from tests.fuzz.mutations import MOST_BYTES, mutate
from tests.fuzz.target import Target
from tests.fuzz.targets import all_targets

FILES = 15  # files of a target
TARGETS = all_targets()


@pytest.mark.parametrize("name", TARGETS)
def test_no_file_breaks_a_reader(tmp_path, name):
    target = TARGETS[name]
    draw, seeds = Random(name), target.seeds()
    for n in range(FILES):
        data = target.pack(target.mutate(seeds, draw), draw)
        outcome = attempt(target, data, tmp_path)
        assert not outcome.failed, f"{name}, file {n}: {outcome.said}"


def _stand_in(use) -> Target:
    return Target("stand-in", lambda: [b'{"a": 1}\n'], use)


def _refuse_in_silence(path: Path):
    raise InputError("")


def _boast(path: Path):
    raise SystemExit("Traceback (most recent call last)")


def _loop(path: Path):
    while True:
        pass


def _hoard(path: Path):
    len(b"x" * (64 << 20))  # zeros would take no memory until they are read


@pytest.mark.parametrize(
    "use, says",
    [
        (lambda path: {}["key"], "KeyError"),
        (_refuse_in_silence, "without a word"),
        (_boast, "exit code Traceback"),
        (_loop, "took more than 0.2 s"),
        (_hoard, "MiB, more than 16"),
    ],
)
def test_what_goes_wrong_is_found(tmp_path, use, says):
    outcome = attempt(_stand_in(use), b"", tmp_path, seconds=0.2, mib=16)
    assert outcome.failed and says in outcome.said


def test_what_goes_well_is_told_apart(tmp_path):
    def use(path: Path):
        if path.read_bytes():
            raise InputError("x: not empty. Empty it.")

    read, refused = (attempt(_stand_in(use), data, tmp_path) for data in (b"", b"x"))
    assert (read.failed, read.read) == (False, True)
    assert (refused.failed, refused.read) == (False, False)
    assert refused.said == "x: not empty. Empty it."


def test_failures_are_kept_to_be_repeated(tmp_path):
    def use(path: Path):
        assert path.read_bytes() == b'{"a": 1}\n'

    folder = tmp_path / "tried"
    folder.mkdir()
    tally = fuzz(_stand_in(use), Plan([], 0, 0.2, 60, 999), folder)
    assert tally.tried >= tally.failed > 0
    (said, path), *_ = tally.failures.items()
    assert (
        "AssertionError" in said
        and attempt(_stand_in(use), path.read_bytes(), folder).failed
    )


def test_a_campaign_ends_with_a_tally_of_each_target(tmp_path):
    names = ["trace azure", "policy"]
    found = run(Plan(names, 0, 0.1, 60, 999), tmp_path)
    assert [tally.name for tally in found] == names
    assert all(tally.tried > 0 and not tally.failures for tally in found)


def test_a_seed_gives_the_same_files():
    seeds = [b'{"a": 1, "b": [2, "x"]}\n' * 3, b"c = 4\n"]
    one, again = (
        [mutate(seeds, draw) for _ in range(500)] for draw in (Random(5), Random(5))
    )
    assert one == again
    assert len(set(one)) > 300 and max(map(len, one)) <= MOST_BYTES


def test_command_lines_are_drawn_from_the_parser():
    assert {"compare", "trace-from-prompts", "show-job"} <= set(words.commands())
    assert {"--policies", "--why-by"} <= set(words.flags("compare"))
    assert "--alpha" in words.flags("make")
