"""Every policy at every capacity on real traces: writes docs/board.md.

    python benchmarks/board.py FOLDER [--out docs/board.md]

FOLDER holds the traces by the names of `BOARDS`. Each table is what `perc compare
--warmup 0.5` says of all registered policies with their default parameters, and of a
network that `perc train` taught on the requests which are not counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import common
import tyro

from perc.cli.policies import parse_policies
from perc.cli.progress import progress_bar
from perc.compare import Comparison, Row, compare
from perc.files import check_writable, write_atomically
from perc.metrics import warmup_requests
from perc.policies.registry import registry
from perc.train.fit import fit
from perc.tune_search import first_requests
from perc.types import OnlinePolicy, Trace

WARMUP = 0.5
VARIANTS = {"gdsf": "gdsf:retained=true", "lru_k": "lru_k:retained=true"}
SEED = 0  # of the training
GAP = 0.01  # of hit ratio between LRU and the bound: a share of less says nothing


@dataclass(frozen=True)
class Board:
    """One table."""

    title: str
    file: str
    capacities: tuple[int, ...]  # blocks
    about: str
    block_tokens: int | None = None


BOARDS = (
    Board(
        "Conversations",
        "mooncake_conversation_trace.jsonl.gz",
        (1_000, 3_000, 10_000, 30_000, 50_000),
        "Mooncake, one hour of a chat service.",
    ),
    Board(
        "Coding agents",
        "claude_code_v6_interleaved24h_b512.jsonl.xz",
        (466, 932, 1_865, 3_731),
        "Claude Code sessions, their starts drawn over 24 hours.",
    ),
    Board(
        "Retrieval",
        "ragpulse_b16.jsonl.xz",
        (1_000, 4_000, 8_891),
        "RAGPulse, a week. Nothing to gain beyond the shared system prompts: a "
        "negative control.",
        block_tokens=16,
    ),
    Board(
        "Agent runs one after the other",
        "lmcache_agent_b16.jsonl.xz",
        (262, 600, 1_311, 4_000),
        "LMCache's agent traces, in the order of their recording: the second negative "
        "control.",
        block_tokens=16,
    ),
)

HEAD = f"""# The board: every policy on real traces

Written by `python benchmarks/board.py FOLDER`, never by hand; what each policy does is
in [policies.md](policies.md).

- A cell is the **block hit ratio** in percent, blocks of the longest resident prefix
  over blocks looked up, and after it the **share of the gap closed**,
  (policy - lru) / (bound - lru), where the bound is a point or more above `lru`.
- The bound is `belady`, or `belady_bypass` for a policy that may refuse to store a
  block (†). Both know the future (*).
- The first {WARMUP:.0%} of the requests fill the cache and are not counted. Every
  policy serves the same requests with its default parameters, the same for all traces;
  some defaults were chosen with the conversation trace in sight (policies.md says
  which).
- **Bold**: the most hits of a policy that does not know the future. _Slanted_: fewer
  than `lru`.
- `learned` is a network that `perc train` taught by imitation, seed {SEED}, on the
  requests that are not counted, guarded; one for each trace ([learned.md](learned.md)).
- Traces without priorities make `priority` `lru`.
- Measured on {common.machine()}; {common.versions()}.
"""


def main(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")],
    *,
    out: Path = Path(__file__).parents[1] / "docs" / "board.md",
) -> None:
    """Writes the board.

    Args:
        folder: where the traces are.
        out: file of the board.
    """
    check_writable(out.parent)
    text = "\n".join([HEAD, *(section(folder, board) for board in BOARDS)])
    write_atomically(out, lambda path: path.write_text(text))
    common.say(f"wrote {out}")


def section(folder: Path, board: Board) -> str:
    """One trace: title, what it is, the table."""
    trace = common.open_trace(folder / board.file, board.block_tokens)
    names = [(name, VARIANTS.get(name, "")) for name in registry]
    policies = parse_policies(",".join(filter(None, sum(names, ()))))
    bounds = [policy.name for policy in policies].index("belady")
    policies.insert(bounds, _learned(trace))
    with progress_bar(board.title) as progress:
        result = compare(
            trace, policies, board.capacities, warmup=WARMUP, progress=progress
        )
    bypass = {policy.name for policy in policies if policy.bypass}
    ideal = result.trace["ideal_counted_block_hit_ratio"]
    return "\n".join(
        [
            f"## {board.title}",
            "",
            f"{board.about} `{board.file}`: {trace.n_requests:,} requests, "
            f"{trace.n_blocks:,} distinct blocks of {trace.block_tokens} tokens; an "
            f"infinite cache hits {ideal:.2%}.",
            "",
            *table(result, bypass),
            "",
        ]
    )


def _learned(trace: Trace) -> OnlinePolicy:
    before = first_requests(trace, warmup_requests(trace, WARMUP))
    return replace(fit(before, "imitation", seed=SEED), name="learned")


def table(result: Comparison, bypass: set[str]) -> Iterator[str]:
    """Lines of Markdown: a line a policy, a column a capacity."""
    cells = {(row.policy, row.capacity_blocks): row for row in result.rows}
    names = dict.fromkeys(row.policy for row in result.rows)
    sizes = dict.fromkeys(row.capacity_blocks for row in result.rows)
    bound = {size: cells["belady", size].block_hit_ratio for size in sizes}
    best = {size: max(_causal_hits(result, size)) for size in sizes}
    yield _line("policy", *(f"{size:,}" for size in sizes))
    yield _line("---", *("--:" for _ in sizes))
    for name in names:
        known = "*" if name in result.clairvoyant else ""
        mark = known + ("†" if name in bypass else "")
        row = (
            _cell(cells[name, size], cells["lru", size], known, best[size], bound[size])
            for size in sizes
        )
        yield _line(f"`{name}`{mark}", *row)


def _causal_hits(result: Comparison, size: int) -> Iterator[float]:
    for row in result.rows:
        if row.capacity_blocks == size and row.policy not in result.clairvoyant:
            yield row.block_hit_ratio


def _cell(row: Row, lru: Row, known: str, best: float, bound: float) -> str:
    hits = f"{100 * row.block_hit_ratio:.2f}"
    if row.block_hit_ratio < lru.block_hit_ratio:
        hits = f"_{hits}_"
    elif row.block_hit_ratio == best and not known:
        hits = f"**{hits}**"
    if row.gap_closed is None or bound - lru.block_hit_ratio < GAP:
        return hits
    return f"{hits} ({row.gap_closed:.0%})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
