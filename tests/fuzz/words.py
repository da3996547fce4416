"""Command lines: real commands and flags with values that nobody means."""

import contextlib
import functools
import io
import json
import re
from pathlib import Path
from random import Random

from perc.cli import main
from tests.fuzz import seeds

# They wait for others: a browser, an engine that publishes, an engine that serves.
WAITING = ("serve", "vllm-benchmark", "compare-models")
NOT_DRAWN = ("--from", "--workers", "--engine")  # listens; starts processes
HOSTILE = [
    *("", " ", "nan", "inf", "-inf", "1e999", "-1", "0", "-0.0", "0.5", "1e-320", "x"),
    *("1" + "0" * 19, str(2**63), "-" + str(2**63), "9" * 5000, "1_0", "0x10", "１"),
    *("true", "None", "null", "[]", "{}", "lru", "lru:", "lru:k", ":", ",", "lru,,lru"),
    *("perc_decay:tau_s=nan", "perc_decay:tau_s=9" + "9" * 400, "x.npz", "x.npz:k=1"),
    *("\x1b[31m", "\u202e", "\udcff", "\0", "\n", "y" * 5000, "@", "@gone.toml", "--"),
    *("/", ".", "/dev/null", "/proc/self/mem", "gone/gone", "a\0b", "-", "--help"),
]
VALID = [
    ["policies"],
    ["hardware", "--model", "llama-3.1-8b"],
    ["cost", "llama-3.1-8b", "h100"],
    ["inspect", "TRACE"],
    ["lab", "scenario", "--docs", "3", "--tokens", "4", "--gpu", "8"],
    ["compare", "TRACE", "--policies", "lru", "--capacities", "4"],
    ["advise", "TRACE", "--gpu", "h100"],
    ["make", "zipf", "--requests", "9", "--out", "made.parquet"],
]
STARTS = {  # what a command needs before its flags count
    "inspect": ["TRACE"],
    "curve": ["TRACE"],
    "compare": ["TRACE"],
    "plan": ["TRACE"],
    "explain": ["TRACE"],
    "simulate": ["TRACE"],
    "train": ["TRACE", "--out", "made.npz"],
    "tune": ["TRACE"],
    "convert": ["TRACE", "made.parquet"],
    "advise": ["--gpu", "h100"],
    "cost": ["llama-3.1-8b", "h100"],
    "profile": ["preset:sharegpt"],
    "make": ["zipf", "--out", "made.parquet"],
    "render-job": ["TRACE", "--script", "job.py", "--models", "m"],
}


def valid() -> list[bytes]:
    """Command lines that end well."""
    return [json.dumps(words).encode() for words in VALID]


def run(path: Path) -> None:
    """Runs the words of a file in the file's own folder."""
    given = json.loads(path.read_bytes())
    trace = str(seeds.DATA / "mooncake.jsonl")
    with contextlib.chdir(path.parent):
        main([trace if word == "TRACE" else word for word in given])


def mutate(seeds: list[bytes], draw: Random) -> bytes:
    """A command line with another word in it, or a command with some flags."""
    if draw.random() < 0.3:
        words = json.loads(draw.choice(seeds))
        words[draw.randrange(len(words))] = draw.choice(HOSTILE)
        return json.dumps(words).encode()
    name = draw.choice([n for n in commands() if n not in WAITING])
    words = [name, *STARTS.get(name, [])]
    for flag in draw.choices(flags(name), k=draw.choice((1, 1, 2, 3))):
        words += [flag, draw.choice(HOSTILE)]
    if draw.random() < 0.1:
        words.insert(draw.randint(0, len(words)), draw.choice(HOSTILE))
    return json.dumps(words).encode()


@functools.cache
def commands() -> list[str]:
    """As the parser itself lists them."""
    found = re.search(r"\{([a-z,-]+)\}", _help())
    assert found
    return found[1].split(",")


@functools.cache
def flags(name: str) -> list[str]:
    """Of a command, as its help has them."""
    words = [name, "zipf"] if name == "make" else [name]
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", _help(*words)))
    return sorted(found - set(NOT_DRAWN)) or ["--help"]


def _help(*words: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return said.getvalue()
