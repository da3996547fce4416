"""What every policy hits on fixed traffic: the same on every Python, jax and machine.

python -m tests.test_golden      writes tests/data/golden.json anew, after a change
                                 that is meant to change results
"""

import functools
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import perc
from perc.compare import run
from perc.policies.registry import registry
from perc.traces.hashing import hash_of

GOLDEN = Path(__file__).parent / "data" / "golden.json"
TRAFFIC = {"chat": 500, "agent": 60}
SHARES = (0.03, 0.2)
FEW = ("lru", "arc", "gdsf", "perc", "belady")  # one of each engine


@functools.cache
def traffic(workload):
    """The trace of a workload."""
    return perc.make(workload, requests=TRAFFIC[workload])


def found(workload, names=tuple(registry)):
    """Hashes of a workload's trace and of the policies' hits at each capacity."""
    trace = traffic(workload)
    sizes = [max(int(share * trace.n_blocks), 1) for share in SHARES]
    return {
        "trace": hash_of(trace),
        "sizes": sizes,
        "hits": {
            name: [
                [int(row.sum()), hashlib.sha256(row.astype("<i4")).hexdigest()[:16]]
                for row in np.asarray(run(registry[name](), trace, sizes))
            ]
            for name in names
        },
    }


@pytest.mark.parametrize("workload", TRAFFIC)
@pytest.mark.parametrize("name", registry)
def test_hits_are_what_they_were(name, workload):
    golden = json.loads(GOLDEN.read_text())[workload]
    assert set(golden["hits"]) == set(registry)
    golden["hits"] = {name: golden["hits"][name]}
    assert found(workload, [name]) == golden


def test_another_process_and_hash_seed_find_the_same():
    code = (
        "import json; from tests.test_golden import FEW, found; "
        "print(json.dumps(found('agent', FEW)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        env={"PYTHONHASHSEED": "7", "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    golden = json.loads(GOLDEN.read_text())["agent"]
    golden["hits"] = {name: golden["hits"][name] for name in FEW}
    assert json.loads(done.stdout) == golden


if __name__ == "__main__":
    made = {workload: found(workload) for workload in TRAFFIC}
    GOLDEN.write_text(json.dumps(made, indent=1) + "\n")
