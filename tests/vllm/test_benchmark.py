"""`perc vllm-benchmark` with a tiny model: hits, answers, a script for elsewhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

import perc
from perc.traces import save
from tests.vllm import tiny

OPTIONS = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "enforce_eager": True,
    "dtype": "float32",
    "block_size": tiny.BLOCK,
    "num_gpu_blocks_override": 120,
    "max_model_len": 1024,
}


def run(*words, folder):
    cleared = {k: v for k, v in os.environ.items() if not k.startswith("PERC_")}
    environment = {**cleared, **tiny.ENVIRONMENT}
    del environment["VLLM_PLUGINS"]  # perc's is to be there, as it is for a user
    done = subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_here_and_as_a_script_engines_hit_alike(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(tiny.MODEL))
    save(perc.make("agent", requests=30), tmp_path / "t.parquet")
    command = Path(sys.executable).with_name("perc")
    flags = ["--models", tmp_path / "model", "--limit", "8", "--repeats", "1"]
    flags += ["--answer-tokens", "2", "--at-once", "1", "--options"]
    flags += [json.dumps(OPTIONS)]
    run(
        *(command, "vllm-benchmark", "t.parquet", *flags),
        *("--policies", "stock,perc", "--out", "out"),
        folder=tmp_path,
    )
    here = pl.read_parquet(tmp_path / "out" / "results.parquet")
    assert here["arm"].to_list() == ["stock", "perc"]
    assert here["requests"].to_list() == [8, 8]
    assert here["hit_tokens"][0] > 0
    assert here["same_answers"].to_list() == [8, 8]
    run(
        *(command, "render-job", "t.parquet", *flags),
        *("--policies", "stock", "--script", "job.py"),
        folder=tmp_path,
    )
    run(sys.executable, "job.py", "found.json", folder=tmp_path)
    said = run(command, "show-job", "found.json", "--json", folder=tmp_path)
    (row,) = json.loads(said.stdout)["rows"]
    assert row["hit_tokens"] == here["hit_tokens"][0]
    assert row["input_tokens"] == here["input_tokens"][0]
