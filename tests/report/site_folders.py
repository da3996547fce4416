"""Folders for `perc serve` to show."""

import json
import os
import shutil

import polars as pl


def write(folder, about, name="run.json", **tables):
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(about))
    for table, frame in tables.items():
        frame.write_parquet(folder / f"{table}.parquet")


def results(**more):
    return pl.DataFrame(
        {
            "policy": ["lru", "belady"],
            "capacity_blocks": [10, 10],
            "block_hit_ratio": [0.25, 0.5],
            "token_hit_ratio": [0.2, 0.4],
            "recompute_tokens": [8, 4],
            "recompute_s": [2.0, 1.0],
            "gap_closed": [0.0, 1.0],
            **more,
        }
    )


def root_of_runs(tmp_path):
    """A folder with one run, `a`, and a link to a folder with another."""
    root = tmp_path / "runs"
    about = {
        "command": ["perc", "compare", "x"],
        "verdict": ["LRU does."],
        "trace": {"source": "x"},
    }
    write(root / "a", about, results=results(), curves=results())
    (tmp_path / "secret").mkdir()
    shutil.copytree(root / "a", tmp_path / "secret" / "b")
    os.symlink(tmp_path / "secret", root / "link")
    return root


def part(done, first=0):
    """Rows of configurations, each at two capacities."""
    return pl.DataFrame({"config": [str(first + i // 2) for i in range(2 * done)]})


def begin_sweep(root, done):
    write(root / "deep" / "sw", {"configurations": 8}, name="sweep.json")
    parts = root / "deep" / "sw" / "parts"
    parts.mkdir()
    part(done).write_parquet(parts / "1.parquet")
    (parts / ".half.parquet").write_text("torn")
