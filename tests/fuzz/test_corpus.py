"""Every file of the corpus, used as a person would: refused in words, or read right.

The files are described in `corpus/README.md`; what the fuzzing finds joins them.
"""

from pathlib import Path

import pytest

from tests.fuzz.attempt import attempt
from tests.fuzz.targets import all_targets

CORPUS = Path(__file__).parent / "corpus"
READ = ""  # there is nothing to say
# File: target, and words of the refusal.
CASES = {
    # Traces
    "million-digits.jsonl.gz": ("trace mooncake", "line 1: no JSON"),
    "million-decimals.jsonl.gz": ("trace mooncake", READ),
    "deep.jsonl.gz": ("trace mooncake", "line 1: no JSON"),
    "many-keys.jsonl.xz": ("trace mooncake", "field 'z' occurs twice"),
    "nan.jsonl": ("trace mooncake", "line 1: field 'timestamp' is nan"),
    "beyond-floats.jsonl": ("trace mooncake", "line 2: field 'timestamp' is inf"),
    "key-twice.jsonl": ("trace mooncake", "field 'timestamp' occurs twice"),
    "ids-beyond-64-bits.jsonl": ("trace mooncake", READ),
    "bom-crlf.jsonl": ("trace mooncake", READ),
    "latin-1.jsonl": ("trace mooncake", "line 1: byte 85 is no UTF-8"),
    "utf-16.jsonl": ("trace mooncake", "line 1: byte 1 is no UTF-8"),
    "mixed-encodings.jsonl": ("trace mooncake", "line 2: byte 85 is no UTF-8"),
    "line-ends-of-old-macs.jsonl": ("trace mooncake", "line 1: no JSON"),
    "blank-between.jsonl": ("trace detected", "line 2: blank, but more follows"),
    "empty.jsonl": ("trace detected", "the file is empty"),
    "zip.jsonl": ("trace detected", "a zip file, but perc reads .gz"),
    "bomb.gz": ("trace mooncake", "line 1: no JSON"),
    "bomb.xz": ("trace mooncake", "line 1: longer than 256 MiB"),
    "bomb.zst": ("trace mooncake", "line 1: longer than 256 MiB"),
    "cut.gz": ("trace detected", "cut short"),
    "cut.xz": ("trace detected", "cut short"),
    "cut.zst": ("trace detected", "cut short"),
    "no-archive.gz": ("trace detected", "cannot be read"),
    "cut.parquet": ("trace parquet", "cannot be read as parquet"),
    "long-time.csv.gz": ("trace azure", "line 2: TIMESTAMP is '2031-02-03 999"),
    "year-0.csv": ("trace azure", "TIMESTAMP is '0000-01-01 00:00:00'"),
    "other-digits.csv": ("trace azure", "'ContextTokens' is '１２'"),
    "circle.bailian.jsonl": ("trace bailian", "leads in a circle"),
    "sub-agents-300-deep.jsonl.gz": ("trace sessions", READ),
    "links-to-themselves.tar.gz": ("trace ragpulse", "0_trace.jsonl, 1_sys_prompt"),
    "huge-member.tar.gz": ("trace ragpulse", "no tar archive of RAGPulse"),
    # Policies and settings
    "bomb.npz": ("policy", "is compressed, which perc does not do"),
    "beyond-float32.npz": ("policy", "tau_s is 1e+300"),
    "deep.grid.toml": ("sweep grid", "Give a TOML file of a grid"),
    "digits-400.grid.toml": ("sweep grid", "give a finite number"),
    "steps-1e10.grid.toml": ("sweep grid", "steps is 10000000000; give 1,000,000"),
    "samples-1e10.grid.toml": ("sweep grid", "samples is 10000000000; give 1,000,000"),
    "workload-that-is-a-list.grid.toml": ("sweep grid", "workload is ['chat']"),
    "many-parts-of-a-key.grid.toml": ("sweep grid", "a key of more than 99 parts"),
    "many-capacities.grid.toml": ("sweep grid", "capacities has 5999 twice"),
    "product-1e9.grid.toml": ("sweep grid", "400,000,018 configurations"),
    "budget-of-400-digits.rules.toml": ("rules", "pin_budget is 1000"),
    "deep.flags.toml": ("flags", "Give a TOML file of flags"),
    "digits-5000.flags.toml": ("flags", "Give a TOML file of flags"),
    "latin-1.flags.toml": ("flags", "Give a TOML file of flags"),
    "many.flags.toml": ("flags", "3,000 flags, at most 200"),
    "nul.flags.toml": ("flags", "holds the character NUL"),
    "layers-of-400-digits.config.json": ("config.json", "key 'num_hidden_layers' is 1"),
    "deep.config.json": ("config.json", "give a model's config.json"),
    "digits-400.points.csv": ("calibration", "line 6: a decode point: tokens is 1"),
    "nul.points.csv": ("calibration", "line 6: invalid literal"),
    # Texts
    "half-a-surrogate.prompts.jsonl": ("prompts", "must be text that UTF-8 can hold"),
    "time-of-400-digits.prompts.jsonl": ("prompts", "must be seconds"),
    "many-columns.csv.xz": ("prompts csv", "no column 'prompt'"),
    "one-cell-too-many.prompts.csv": ("prompts csv", "line 3: 3 cells under 2 names"),
    "panic.prompts.parquet": ("prompts parquet", "cannot be read as parquet"),
    "no-unknown-word.tokenizer.json": ("tokenizer", "the tokenizer fails on these"),
    "column-of-a-megabyte.csv.gz": ("texts csv", "no column of messages"),
    # What perc and its engines wrote
    "cut.sweep.json": ("sweep.json", "not as perc sweep wrote it"),
    "cut.sweep-part.parquet": ("sweep part", "not as perc sweep wrote it"),
    "other-columns.sweep-part.parquet": ("sweep part", "it has other columns than"),
    "deep.run.json": ("report compare run.json", "no JSON that can be read"),
    "half-a-surrogate.run.json": ("report compare run.json", "no JSON that can be"),
    "deep.job.json": ("show-job", "not what a script of perc render-job writes"),
    "no-answers.job.json": ("show-job", "not what a script of perc render-job writes"),
    "arms-missing.job.json": ("show-job", "not what a script of perc render-job"),
    "endless-times.job.json": ("show-job", "FloatingPointError: invalid value"),
    "time-of-400-digits.measured.jsonl": ("lab summarize", "line 1: ttft_ms is 1000"),
    "deep.measured.jsonl": ("lab summarize", "line 3: RecursionError"),
    # Command lines
    "digits-5000.words.json": ("command line", "is no capacity"),
    "bytes-no-text.words.json": ("command line", "No such file"),
}
TARGETS = all_targets()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file(tmp_path, name):
    target, says = CASES[name]
    outcome = attempt(TARGETS[target], (CORPUS / name).read_bytes(), tmp_path)
    assert not outcome.failed, outcome.said
    assert outcome.read == (says == READ), outcome.said
    assert says in " ".join(outcome.said.replace("│", " ").split())


def test_no_file_is_left_out():
    assert {path.name for path in CORPUS.iterdir()} == {*CASES, "README.md"}
