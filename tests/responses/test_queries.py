"""What is the same question, and how alike two are."""

from typing import Any

import numpy as np
import pytest

from perc.errors import InputError
from perc.responses.queries import cosines, ngrams, query


def same(a, b):
    return bool((a.digest == b.digest).all())


def test_exact_means_prompt_and_parameters():
    base = query("hi", {"model": "a", "temperature": 0})
    assert same(base, query("hi", {"temperature": 0, "model": "a"}))
    others = [
        query("hi"),
        query("hi "),
        query("Hi", {"model": "a", "temperature": 0}),
        query("hi", {"model": "b", "temperature": 0}),
        query("hi", {"model": "a", "temperature": 1}),
        query("hi", {"model": "a"}),
        query('{"model":"a","temperature":0}hi'),
    ]
    assert not any(same(base, other) for other in others)
    assert (base.scope == query("else", {"model": "a", "temperature": 0}).scope).all()


def test_where_parameters_end_is_told():
    """Without their length `{}` and `{}{}` could be read as each other."""
    assert not same(query("{}x", {}), query("x", {}))
    found = {query(text, {"a": n}).digest.tobytes() for text in "ab" for n in (1, 11)}
    assert len(found) == 4


def test_cosines():
    rows = np.array([[3.0, 4.0], [-6.0, -8.0], [4.0, -3.0], [0.0, 0.0], [0.3, 0.4]])
    found = cosines(rows, np.array([0.3, 0.4]))
    np.testing.assert_allclose(found, [1, -1, 0, 0, 1], atol=1e-12)
    assert found[4] == 1 and cosines(rows, np.zeros(2)).tolist() == [0] * 5
    draw = np.random.default_rng(0).standard_normal((50, 301))
    assert all(cosines(draw, row)[i] == 1 for i, row in enumerate(draw))


def test_ngrams_see_spelling_and_nothing_else():
    a, b, c = ngrams(["Who wrote Emma?", "who  wrote\nEMMA ?", "the price of oil"])
    found = cosines(np.stack([b, c]), a)
    assert found[0] > 0.8 and found[1] < 0.2
    np.testing.assert_array_equal(ngrams(["Who wrote Emma?"])[0], a)
    assert ngrams([""]).sum() >= 0


def test_bad_input():
    with pytest.raises(InputError, match="give JSON"):
        query("a", {"f": object()})
    with pytest.raises(InputError, match="give JSON"):
        query("a", {"f": float("nan")})
    unnamed: list[Any] = [{1: 0}, {"tools": [{"a": {None: 0}}]}, {"x": ({True: 0},)}]
    for names in unnamed:
        with pytest.raises(InputError, match="must be a string; give '(1|None|True)'"):
            query("a", names)
    for wrong in (lambda t: [1.0], lambda t: [[float("nan")]], lambda t: [[1], [2]]):
        with pytest.raises(InputError, match="rows of finite numbers"):
            query("a", embed=wrong)
