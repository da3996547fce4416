"""CachePilot's traffic, draw for draw."""

import dataclasses
from collections import Counter

import pytest

from perc.cachepilot.workloads import Request, Traffic, generate
from perc.errors import InputError

SPIKED = Traffic(spike_at=300)


def short(request: Request) -> tuple[str, int, int]:
    return request.workload, request.prompt, request.answer


def test_published_requests():
    requests = generate(SPIKED, 42)
    assert [short(r) for r in requests[:6]] == [
        ("chat", 241, 259),
        ("code", 597, 221),
        ("chat", 285, 303),
        ("chat", 161, 94),
        ("code", 522, 242),
        ("code", 432, 318),
    ]
    times = [0.1020060287, 0.2353652963, 0.2901699119]
    times += [0.2928593524, 0.3177619942, 0.4816585804]
    found = [r.arrival_s for r in requests[:6]]
    assert found == pytest.approx(times, abs=5e-10)
    assert short(requests[299]) == ("summarize", 1216, 114)
    assert short(requests[300]) == ("chat", 123, 130)
    assert short(requests[999]) == ("chat", 287, 80)
    times = [round(requests[i].arrival_s, 10) for i in (299, 300, 999)]
    assert times == [30.2248690403, 30.2713942646, 48.2079282155]
    assert round(generate(Traffic(), 42)[999].arrival_s, 10) == 102.1571057413
    kinds = Counter(r.workload for r in requests)
    assert kinds == {"chat": 425, "code": 298, "summarize": 174, "longctx": 103}
    assert sum(r.prompt for r in requests) == 1_239_412
    assert sum(r.answer for r in requests) == 236_909


def test_spike_changes_times_only():
    plain, spiked = generate(Traffic(), 42), generate(SPIKED, 42)
    assert [short(r) for r in plain] == [short(r) for r in spiked]
    assert [r.arrival_s for r in plain[:300]] == [r.arrival_s for r in spiked[:300]]
    assert plain[300].arrival_s > spiked[300].arrival_s


def test_spike_at_request_0_is_one():
    once = generate(Traffic(requests=5, spike_at=0), 1)
    faster = generate(Traffic(requests=5, rate_per_s=40.0), 1)
    assert once == faster
    assert once != generate(Traffic(requests=5), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"workload": "prose"},
        {"requests": 0},
        {"rate_per_s": 0.0},
        {"spike_at": 1000},
        {"spike_at": -1},
        {"spike_multiplier": 0.0},
    ],
)
def test_bad_traffic_is_refused(wrong):
    with pytest.raises(InputError):
        dataclasses.replace(Traffic(), **wrong)
