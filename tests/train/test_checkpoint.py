"""Training that was interrupted: resumed to the same bits, or refused."""

import shutil
from typing import Any

import numpy as np
import pytest

import perc
from perc import npz
from perc.errors import InputError
from perc.policies.learned import network_of
from perc.policies.store import save
from perc.train.checkpoint import RESTART
from perc.train.fit import fit
from perc.train.methods import METHODS

QUICK: dict[str, Any] = dict(
    steps=70, members=1, classes=4, batch=64, hidden=(4,), held_out=0.0
)


class Interrupted(Exception):
    pass


def stop_after(steps):
    def progress(done, total, text):
        if done >= steps:
            raise Interrupted

    return progress


@pytest.fixture(scope="module")
def chat():
    return perc.make("chat", requests=100, seed=1)


@pytest.fixture(scope="module")
def begun(chat, tmp_path_factory):
    """A checkpoint of imitation after 50 of 70 steps."""
    path = tmp_path_factory.mktemp("begun") / "state.npz"
    with pytest.raises(Interrupted):
        fit(chat, checkpoint=path, progress=stop_after(50), **QUICK)
    return path


@pytest.fixture
def path(begun, tmp_path):
    return shutil.copy(begun, tmp_path / "mine.npz")


@pytest.mark.parametrize(
    ("method", "steps"),
    [("imitation", 70), *((m, 100) for m in METHODS if m != "imitation")],
)
def test_resumed_training_ends_at_the_same_policy(chat, tmp_path, method, steps):
    path, told, how = tmp_path / "state.npz", [], {**QUICK, "steps": steps}
    whole = network_of(fit(chat, method, **how))
    with pytest.raises(Interrupted):
        fit(chat, method, checkpoint=path, progress=stop_after(50), **how)

    def note(*said):
        told.append(said[0])

    resumed = fit(chat, method, checkpoint=str(path), progress=note, **how)
    assert network_of(resumed) == whole
    assert told == [steps]
    done = fit(chat, method, checkpoint=path, progress=note, **how)
    assert network_of(done) == whole
    assert told == [steps, steps]  # only the score is told


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"steps": 71},
        {"members": 2},
        {"hidden": (5,)},
        {"rate": 0.001},
        {"held_out": 0.2},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_of_other_settings(chat, path, changes):
    with pytest.raises(InputError, match=r"mine.npz.*another trace, method, setting"):
        fit(chat, checkpoint=path, **{**QUICK, **changes})


def test_of_another_trace_or_method(chat, path):
    with pytest.raises(
        InputError, match=r"another trace.*Delete it to start again, or name another"
    ):
        fit(perc.make("chat", requests=100, seed=2), checkpoint=path, **QUICK)
    with pytest.raises(InputError, match="another trace, method"):
        fit(chat, "ttl", checkpoint=path, **QUICK)


def test_damaged_files_are_refused(chat, path):
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for data in (b"", b"PK", whole[:-9], whole[: len(whole) // 2], flipped):
        path.write_bytes(data)
        with pytest.raises(InputError, match=f"mine.npz: is .*[.] {RESTART}$"):
            fit(chat, checkpoint=path, **QUICK)


def _parts(path):
    header, raw = npz.unpack(path.read_bytes())
    return header, {name: npz.to_array(name, part) for name, part in raw.items()}


@pytest.mark.parametrize("done", [-1, 1.5, "50", None, True, 71])
def test_steps_that_cannot_be(chat, path, done):
    header, leaves = _parts(path)
    path.write_bytes(npz.pack({**header, "done": done}, leaves))
    with pytest.raises(InputError, match="not as training left it"):
        fit(chat, checkpoint=path, **QUICK)


def test_arrays_that_do_not_fit(chat, path):
    header, leaves = _parts(path)
    first = leaves["leaf000"]
    less = {name: leaves[name] for name in list(leaves)[1:]}
    for changed in (
        less,
        {**leaves, "leaf000": first[..., :1]},
        {**leaves, "leaf000": first.astype(np.float64)},
        {**leaves, "leaf999": first},
    ):
        path.write_bytes(npz.pack(header, changed))
        with pytest.raises(InputError, match="not as training left it"):
            fit(chat, checkpoint=path, **QUICK)


def test_a_policy_file_is_no_checkpoint(chat, tmp_path):
    path = save(tmp_path / "p.npz", fit(chat, **QUICK))
    with pytest.raises(InputError, match=f"p.npz: .*{RESTART}$"):
        fit(chat, checkpoint=path, **QUICK)


def test_a_folder_is_no_checkpoint(chat, tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        fit(chat, checkpoint=tmp_path, **QUICK)


def test_what_no_file_can_hold_is_told_before_training(chat, tmp_path, monkeypatch):
    monkeypatch.setattr("perc.train.checkpoint.ROOM_BYTES", 1000)
    with pytest.raises(InputError, match="state.npz: .*bytes, at most 1,000 fit. Give"):
        fit(chat, checkpoint=tmp_path / "state.npz", progress=stop_after(0), **QUICK)


def test_a_place_that_takes_no_file_is_told(chat, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another folder"):
        fit(chat, checkpoint=tmp_path / "file" / "state.npz", **QUICK)
