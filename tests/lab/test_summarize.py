"""Medians, means and ratios of measured times."""

import json

import pytest

from perc.errors import InputError
from perc.lab.summarize import summarize


def rows(**ms):
    return [
        json.dumps({"config": config, "pass": "pass1-cold", "doc": i, "ttft_ms": t})
        for config, times in ms.items()
        for i, t in enumerate(times)
    ]


def test_the_vector():
    lines = rows(baseline=[110.0, 101.0, 100.0, 103.0], lmcache=[110.04, 112.0, 111.0])
    assert summarize([lines[-1], "", "  ", *lines[:-1]]) == {
        "baseline": {"pass1-cold": {"n": 4, "p50_ms": 102.0, "mean_ms": 103.5}},
        "lmcache": {"pass1-cold": {"n": 3, "p50_ms": 111.0, "mean_ms": 111.0}},
        "ratio": {"pass1-cold": {"p50": 0.92, "mean": 0.93}},
    }


def test_ratios_are_of_exact_figures():
    found = summarize(rows(baseline=[10.04], lmcache=[1.04]))
    assert found["ratio"]["pass1-cold"]["p50"] == 9.65


def test_a_pass_of_one_configuration_has_no_ratio():
    other = {"config": "lmcache", "pass": "pass2-replay", "ttft_ms": 5}
    found = summarize([*rows(baseline=[7]), json.dumps(other)])
    assert found["ratio"] == {}
    assert found["lmcache"]["pass2-replay"] == {"n": 1, "p50_ms": 5, "mean_ms": 5}
    assert summarize([]) == {"baseline": {}, "lmcache": {}, "ratio": {}}


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2: JSONDecodeError"),
        ("[]", "line 2: TypeError"),
        ('{"config": "baseline", "pass": "p"}', "line 2: KeyError: 'ttft_ms'"),
        ('{"config": "x", "pass": "p", "ttft_ms": 1}', "config is 'x'"),
        ('{"config": "baseline", "pass": "p", "ttft_ms": 0}', "ttft_ms is 0"),
        ('{"config": "baseline", "pass": "p", "ttft_ms": NaN}', "ttft_ms is nan"),
        ('{"config": "baseline", "pass": "p", "ttft_ms": "1"}', "ttft_ms is '1'"),
    ],
)
def test_what_is_refused(line, message):
    with pytest.raises(InputError, match=message):
        summarize(["", line])
