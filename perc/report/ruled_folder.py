"""A run of `perc compare --rules` as a folder: run.json and its tables as parquet."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from perc.attribution import Attribution
from perc.files import check_writable
from perc.report.run_folder import (
    misses_writer,
    provenance,
    save_json,
    write_files,
)
from perc.retention import RuleComparison
from perc.retention.tables import verdict
from perc.types import Trace

if TYPE_CHECKING:
    import polars as pl


def write_ruled_run(
    folder: Path,
    result: RuleComparison,
    trace: Trace,
    *,
    rules: Path,
    command: Sequence[str],
    misses: Attribution | None = None,
) -> list[Path]:
    """Writes what is needed to read, check and repeat a comparison with rules.

    results.parquet has a row for each policy and capacity, its figures those with the
    rules and under `without_` those without; classes.parquet has the block hit ratio
    of each rule, tenant and kind.

    Args:
        folder: made if absent; files of the same names are replaced.
        result: of `compare_rules`.
        trace: what was replayed.
        rules: the file of the rules; its text goes into run.json.
        command: how to get the same again.
        misses: their causes, for run.json.

    Returns:
        The written files.

    Raises:
        InputError: if the folder cannot be written to.
    """
    check_writable(folder)
    about = {
        **provenance(trace, command),
        "rules": rules.read_text(),
        "verdict": verdict(result),
        "clairvoyant": list(result.clairvoyant),
        **result.as_dict(),
        **({} if misses is None else {"misses": misses.as_dict()}),
    }
    writers = {
        **misses_writer(about.get("misses", {})),
        "results.parquet": _frame(_results(result)).write_parquet,
        "classes.parquet": _frame(_classes(result)).write_parquet,
        "run.json": save_json(about),
    }
    return write_files(folder, writers)


def _results(result: RuleComparison) -> Iterator[dict]:
    for row in result.rows:
        without = {f"without_{k}": v for k, v in asdict(row.without).items()}
        gain = row.with_rules.block_hit_ratio - row.without.block_hit_ratio
        yield {
            "capacity_blocks": row.capacity_blocks,
            "policy": row.policy,
            **asdict(row.with_rules),
            **without,
            "gain": gain,
        }


def _classes(result: RuleComparison) -> Iterator[dict]:
    for row in result.rows:
        for one in row.classes:
            yield {
                "capacity_blocks": row.capacity_blocks,
                "policy": row.policy,
                **asdict(one),
                "gain": one.with_rules - one.without,
            }


def _frame(rows: Iterator[dict]) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(list(rows), infer_schema_length=None)
