"""The notebook runs to its end, and says what the library says."""

import importlib.util
import re
from pathlib import Path

import pytest

import perc

TOUR = Path(__file__).parents[1] / "docs" / "tour.py"


@pytest.mark.skipif(not TOUR.exists(), reason="run away from a checkout")
def test_every_cell_runs_and_shows_what_perc_computes():
    pytest.importorskip("marimo")
    spec = importlib.util.spec_from_file_location("tour", TOUR)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, found = module.app.run()
    text = " ".join(part.text for part in outputs if part is not None)
    assert "belady" in text and "A policy of your own" in text
    trace = perc.make("chat", requests=1500)
    rows = perc.compare(trace, ["lru", "lfu", "perc", "belady"], [0.02, 0.1]).rows
    assert found["result"].rows == rows
    best = max(r.block_hit_ratio for r in rows if r.policy != "belady")
    (share,) = re.findall(r"reached (\d+)%", text)
    assert int(share) == round(100 * best / (trace.prev >= 0).mean())
