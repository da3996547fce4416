"""A trace's name by its content: what enters it, and what does not."""

import dataclasses

import numpy as np
import pytest

import perc
from perc.traces.hashing import COLUMNS, hash_of

WHOLE = [name for name, dtype in COLUMNS.items() if dtype == "<i4"]


def test_digest_is_that_of_the_content_and_not_of_the_source(small_chat):
    digest = hash_of(small_chat)
    renamed = dataclasses.replace(small_chat, source="elsewhere")
    assert hash_of(renamed) == digest
    assert hash_of(perc.make("chat", requests=300, seed=1)) != digest


@pytest.mark.parametrize("name", COLUMNS)
def test_digest_changes_with_every_column(small_chat, name):
    values = getattr(small_chat, name).copy()
    values[-1] = 7 if np.isinf(values[-1]) else values[-1] + 1
    changed = dataclasses.replace(small_chat, **{name: values})
    assert hash_of(changed) != hash_of(small_chat)


@pytest.mark.parametrize("name", COLUMNS)
def test_byte_order_and_layout_do_not_enter(small_chat, name):
    values = getattr(small_chat, name)
    swapped = values.astype(values.dtype.newbyteorder(">"))
    strided = np.repeat(swapped, 2)[::2]
    changed = dataclasses.replace(small_chat, **{name: strided})
    assert hash_of(changed) == hash_of(small_chat)


@pytest.mark.parametrize("name", WHOLE)
def test_wider_integers_do_not_enter(small_chat, name):
    wide = getattr(small_chat, name).astype(np.int64)
    changed = dataclasses.replace(small_chat, **{name: wide})
    assert hash_of(changed) == hash_of(small_chat)


def test_a_file_keeps_it(small_chat, tmp_path):
    path = tmp_path / "trace.parquet"
    perc.save(small_chat, str(path))
    assert hash_of(perc.load(str(path))) == hash_of(small_chat)
