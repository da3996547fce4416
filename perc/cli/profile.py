"""`perc profile`: tokens of the prompts and answers of a data set, and traffic."""

import json as json_module
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from rich.table import Table

    from perc.profile import Profile
    from perc.profile_rows import Dataset
    from perc.types import Trace

HUB, PRESET = "hf:", "preset:"
HUB_LIMIT = 1000  # rows that are streamed if nothing is said


def profile(
    file: Annotated[Positional[str], arg(metavar="FILE")],
    *,
    tokenizer: Annotated[Path | None, arg(metavar="TOKENIZER.JSON")] = None,
    limit: int | None = None,
    split: str = "train",
    config: str | None = None,
    out: Annotated[Path | None, arg(metavar="FILE.parquet")] = None,
    requests: int | None = None,
    sessions_per_s: float = 1.0,
    block_tokens: int = 16,
    seed: int = 0,
    json: FlagCreatePairsOff[bool] = False,
) -> None:
    """Count the tokens of prompts and answers, and make traffic of them.

    Args:
        file: CSV, JSON, JSONL or parquet with conversations, turns, or prompts and
            answers; hf:NAME, a Hugging Face data set (hf:oasst1, hf:alpaca,
            hf:sharegpt and hf:arena are short names); or preset:NAME, lengths only.
        tokenizer: of the model, in the format of Hugging Face's tokenizers; without it
            lengths are estimated.
        limit: conversations to look at; by default all, of a hub's data set 1,000.
        split: of a hub's data set.
        config: of a hub's data set.
        out: trace to write, a name that ends in .parquet; replaced if it exists.
        requests: of that trace; by default every conversation comes once.
        sessions_per_s: conversations that start a second, in that trace.
        block_tokens: of a block, in that trace.
        seed: of order and times, in that trace.
        json: print one JSON object instead of the table.

    Raises:
        InputError: if a file, a row or a number is not as it must be.
    """
    drawn = requests, sessions_per_s, block_tokens, seed
    _check(file, out, drawn, (split, config), limit, tokenizer)
    if file.startswith(PRESET) and out is not None:
        made = _preset(file, out, requests, sessions_per_s, block_tokens, seed)
        print(json_module.dumps({"trace": made}) if json else _sentence(made))
        return
    from perc.profile import profile as profile_of
    from perc.profile_trace import trace_of_dataset
    from perc.traces import save

    dataset = _read(file, limit, split, config)
    ids = None if tokenizer is None else _ids(tokenizer)
    found = profile_of(
        dataset,
        None if ids is None else lambda texts: [len(one) for one in ids(texts)],
        counted_by=str(tokenizer),
    )
    made = None
    if out is not None:
        made = trace_of_dataset(
            dataset,
            None if ids is None else lambda text: ids([text])[0],
            requests=requests,
            sessions_per_s=sessions_per_s,
            block_tokens=block_tokens,
            seed=seed,
        )
        save(made, out)
    if json:
        facts = {} if made is None else {"trace": _facts(made, out)}
        print(json_module.dumps(found.as_dict() | facts, allow_nan=False))
        return
    _print(found)
    if made is not None:
        print(_sentence(_facts(made, out)))


def _check(
    file: str,
    out: Path | None,
    drawn: tuple[int | None, float, int, int],
    hub: tuple[str, str | None],
    limit: int | None,
    tokenizer: Path | None,
) -> None:
    """Refuses what would change nothing, and a limit that is none."""
    from perc.errors import INT32_MAX, InputError, check_whole
    from perc.profile_presets import preset

    if limit is not None:
        check_whole("profile", "--limit", limit, 1, INT32_MAX)
    if file.startswith(PRESET):
        preset(file.removeprefix(PRESET))
        if out is None:
            raise InputError(
                f"{file} has lengths and no texts: give --out FILE.parquet."
            )
        if limit is not None or tokenizer is not None:
            raise InputError(f"{file} has no texts: leave --limit and --tokenizer out.")
        if hub != ("train", None):
            raise InputError(
                f"{file} is no hub's data set: leave --split and --config out."
            )
    elif out is None and drawn != (None, 1.0, 16, 0):
        raise InputError(
            "--requests, --sessions-per-s, --block-tokens and --seed are those of a "
            "trace: give --out FILE.parquet."
        )


def _facts(trace: "Trace", out: Path | None) -> dict[str, Any]:
    return {
        "file": str(out),
        "requests": trace.n_requests,
        "accesses": trace.n_accesses,
        "blocks": trace.n_blocks,
        "block_tokens": trace.block_tokens,
        "repeated": float((trace.prev >= 0).sum() / max(trace.n_accesses, 1)),
    }


def _sentence(facts: dict[str, Any]) -> str:
    return (
        f"{facts['file']}: {facts['requests']:,} requests, {facts['accesses']:,} "
        f"accesses of {facts['blocks']:,} distinct blocks of "
        f"{facts['block_tokens']:,} tokens; {facts['repeated']:.1%} repeat an earlier "
        f"one; times are drawn\nnext: perc compare {shlex.quote(facts['file'])}"
    )


def _preset(
    file: str,
    out: Path,
    requests: int | None,
    per_s: float,
    block_tokens: int,
    seed: int,
) -> dict[str, Any]:
    from perc.profile_presets import trace_of_preset
    from perc.traces import save

    trace = trace_of_preset(
        file.removeprefix(PRESET),
        requests=HUB_LIMIT if requests is None else requests,
        per_s=per_s,
        block_tokens=block_tokens,
        seed=seed,
    )
    save(trace, out)
    return _facts(trace, out)


def _read(file: str, limit: int | None, split: str, config: str | None) -> "Dataset":
    from perc.errors import InputError
    from perc.profile_hub import read_hub
    from perc.profile_rows import read_dataset

    if file.startswith(HUB):
        n = HUB_LIMIT if limit is None else limit
        return read_hub(file.removeprefix(HUB), split=split, config=config, limit=n)
    if split != "train" or config is not None:
        raise InputError(
            f"{file} is a file: --split and --config are of a hub's data set, hf:NAME."
        )
    return read_dataset(file, limit=limit)


def _ids(path: Path) -> Callable[[list[str]], list[Sequence[int]]]:
    """Token ids of texts, without special tokens."""
    from perc.prefix_text import read_tokenizer, tokenise

    model = read_tokenizer(path)
    return lambda texts: list(tokenise(model, texts, special=False))


def _table(found: "Profile") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tokens of a row")
    for name in ("mean", "p50", "p95", "p99", "max"):
        table.add_column(name, justify="right")
    for name, spread in (
        ("prompt", found.prompt_tokens),
        ("response", found.response_tokens),
        ("both", found.total_tokens),
    ):
        table.add_row(
            name, *(f"{value:,.1f}" for value in spread[:4]), f"{spread.max:,}"
        )
    return table


def _print(found: "Profile") -> None:
    from perc.report.wide import print_table, wide_console

    table = _table(found)
    console = wide_console(table)
    many = "unknown" if found.rows_total is None else f"{found.rows_total:,}"
    console.print(
        f"{found.source}: {found.schema}, {found.rows_profiled:,} of {many} rows, "
        f"{found.requests:,} requests",
        markup=False,
    )
    if found.rows_without_prompt:
        console.print(
            f"{found.rows_without_prompt:,} of {found.rows_profiled:,} rows without a "
            "prompt: counted as 0 tokens of prompt, and no request."
        )
    print_table(console, table)
    if found.estimated_total_tokens is not None:
        console.print(f"About {found.estimated_total_tokens:,} tokens in all rows.")
    longest = ", ".join(f"{row.row_id} ({row.total:,})" for row in found.top_rows)
    console.print(f"Longest: {longest}.", markup=False)
    error = found.estimate_error
    if found.counted_by == "estimate":
        console.print(
            "Tokens are estimated. Languages and models differ: --tokenizer counts, "
            "and says how far off the estimate is on this data.",
            style="dim",
        )
    elif error is not None:
        console.print(
            f"Counted by {found.counted_by}. The estimate would be {error.total:+.1%} "
            f"off in all; of a text {error.median:.1%} in the median, {error.p95:.1%} "
            "at p95.",
            markup=False,
        )
