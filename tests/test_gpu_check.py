"""What `benchmarks/gpu_check.py` measures, on the CPU: results, names, shares."""

import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perc.hardware import accelerator

FOLDER = Path(__file__).parents[1] / "benchmarks"
if not FOLDER.is_dir():
    pytest.skip("run away from a checkout", allow_module_level=True)


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("gpu_common")


@pytest.fixture
def memory(common):
    return importlib.import_module("gpu_memory")


@pytest.fixture
def link(common):
    return importlib.import_module("gpu_link")


def test_cards_by_their_drivers_names(memory):
    for kind, name in memory.CARDS.items():
        card = memory.card_of(kind)
        assert card.name == accelerator(name).name and card.bytes_per_s > 1e11
    assert memory.card_of("NVIDIA H100 80GB HBM3").bytes_per_s == 3350e9
    assert memory.card_of("a card of tomorrow") is None


def test_streams_are_verified_and_told_of_the_card(common, memory, monkeypatch, capsys):
    found = memory.time_memory(common.DRY)
    assert [row["name"] for row in found] == ["copy", "triad"]
    assert [row["bytes"] for row in found] == [n * 4 * 1024 for n in (2, 3)]
    assert all(row["equal"] and row["seconds"] > 0 for row in found)
    assert [row["of_the_card"] for row in found] == [None, None]
    monkeypatch.setitem(memory.CARDS, jax.devices()[0].device_kind, "h200")
    monkeypatch.setattr(memory, "copy", lambda a, b: a + 1)  # a kernel that is wrong
    for row in (again := memory.time_memory(common.DRY)):
        assert row["of_the_card"] == pytest.approx(
            row["bytes"] / row["seconds"] / 4800e9
        )
    assert [row["equal"] for row in again] == [False, True]
    assert "below the bar of 70 %" in capsys.readouterr().out


def test_overlap_is_of_the_shorter(link):
    assert link.Overlap(4.0, 10.0, 10.0).share == 1
    assert link.Overlap(4.0, 10.0, 14.0).share == 0
    assert link.Overlap(10.0, 4.0, 12.0).share == 0.5


def test_what_is_copied_beside_work_arrives(common, link):
    found = link.time_overlap(common.DRY)
    assert [row["direction"] for row in found] == ["out", "back"]
    for row in found:
        assert row["equal"]
        taken = link.Overlap(row["copy_s"], row["compute_s"], row["both_s"])
        assert min(taken) > 0 and row["share"] == taken.share


def test_work_is_done_as_often_as_is_said(link):
    matrix = jnp.array([[2.0, 0.0], [0.0, 4.0]])
    np.testing.assert_array_equal(link.work(matrix, jnp.int32(0)), matrix)
    for products in (1, 3):
        expected = [2.0 ** (products + 1), 4.0 ** (products + 1)]
        found = link.work(matrix, jnp.int32(products)) * 2.0**products
        np.testing.assert_array_equal(jnp.diag(found), expected)


def test_conditions_name_the_device(common):
    said = common.conditions(dry=True)
    assert said["dry"] and said["device"] == jax.devices()[0].device_kind
    assert said["versions"]["jax"] == jax.__version__
