"""Settings and texts that people write: grids, rules, flags, models, prompts."""

import io
from pathlib import Path

from perc.cli import main
from tests.fuzz import seeds
from tests.fuzz.target import Target, command, read_trace

GRID = b"""capacities = [0.5, 4]
seeds = [0, 1]
warmup = 0.5
[[traces]]
workload = "chat"
requests = 50
[[policies]]
name = "lru"
[[policies]]
name = "perc_decay"
tau_s = { from = 10, to = 1000, steps = 3, scale = "log" }
cost_weight = [0, 0.5, 1]
[[policies]]
name = "perc_decay"
tau_s = { low = 1, high = 2000, scale = "log", samples = 4 }
"""
RULES = b"""pin_budget = 0.5
merge = "max"
[[tenants]]
name = "acme"
session = { from = 0, to = 3 }
quota = 0.5
[[rules]]
name = "system"
tokens = { to = 1024 }
pin = true
[[rules]]
kind = ["unknown", "chat"]
turn = [1, 2]
ttl_s = 60
[[rules]]
tenant = "acme"
priority = 70
duration_s = 30.5
"""
FLAGS = b"""tp = 2
mfu = 0.4
context = 4096
json = true
"""


def _read_grid(path: Path) -> None:
    from perc.grid import configurations, describe, read_grid

    grid = read_grid(path)
    describe(grid)
    assert configurations(grid)


def settings() -> list[Target]:
    """Of a sweep, of retention, of a command, of a model, of an accelerator."""
    return [
        Target("sweep grid", lambda: [GRID], _read_grid, "input.toml"),
        Target(
            "rules",
            lambda: [RULES],
            lambda path: (
                command("compare", "--check", "--rules")(path)
                or command(
                    "compare", seeds.DATA / "mooncake.jsonl", "--check", "--rules"
                )(path)
            ),
            "input.toml",
        ),
        Target(
            "flags",
            lambda: [FLAGS],
            lambda path: main(["cost", "llama-3.1-8b", "h100", f"@{path}"]),
            "input.toml",
        ),
        Target(
            "config.json",
            seeds.config,
            command("cost", "h100", "--json", "--config"),
            "config.json",
        ),
        Target(
            "calibration",
            lambda: [seeds.points()],
            command("cost", "llama-3.1-8b", "h100", "--calibrate"),
            "input.csv",
        ),
    ]


PROMPTS = seeds.lines(
    {"prompt": "you are what is a cache", "session": "a", "arrival": 0, "answer": "a"},
    {"prompt": "you are", "session": None, "arrival": 1.5, "answer": ""},
)
PROMPTS_CSV = b'prompt,session,arrival\n"you are, what",a,0\n"you ""are""",b,1.5\n'
CHATS = (
    seeds.lines({"conversations": [{"from": "human", "value": "hi"}]}),
    seeds.lines({"chat_id": 1, "role": "user", "text": "hi"}) * 2,
    seeds.lines({"instruction": "Say", "input": "hi", "output": "Hi."}) * 2,
    b'{"data": [{"prompt": "you are", "response": ["a"]}]}',
)


def _from_prompts(path: Path) -> None:
    model, out = seeds.tokenizer(), path.parent / "made.parquet"
    quantities = ("--block-tokens", 2, "--out", out)
    command("trace-from-prompts", after=("--tokenizer", model, *quantities))(path)
    read_trace(out)


def _by_tokenizer(path: Path) -> None:
    prompts = path.parent / "prompts.jsonl"
    prompts.write_bytes(PROMPTS)
    out = ("--out", path.parent / "made.parquet")
    command("trace-from-prompts", prompts, "--tokenizer", after=out)(path)


def texts() -> list[Target]:
    """Prompts, their tokenizer, conversations."""

    def parquet() -> list[bytes]:
        import polars as pl

        file = io.BytesIO()
        pl.DataFrame({"prompt": ["you are", "what"]}).write_parquet(file)
        return [file.getvalue()]

    def job_of_prompts(path: Path) -> None:
        render_to = path.parent / "job.py"
        main(
            ["render-job", "--models", "m", "--prompts", str(path)]
            + ["--script", str(render_to)]
        )

    return [
        Target("prompts", lambda: [PROMPTS], _from_prompts),
        Target("prompts csv", lambda: [PROMPTS_CSV], _from_prompts, "input.csv"),
        Target("prompts parquet", parquet, _from_prompts, "input.parquet"),
        Target("prompts of a job", lambda: [PROMPTS], job_of_prompts),
        Target(
            "tokenizer",
            lambda: [seeds.tokenizer().read_bytes()],
            _by_tokenizer,
            "tokenizer.json",
        ),
        Target("texts", lambda: list(CHATS), command("profile")),
        Target("texts csv", lambda: [PROMPTS_CSV], command("profile"), "input.csv"),
    ]
