"""Measured times of first tokens, in two configurations: medians, means, ratios.

One JSON object a line: config (baseline or lmcache), pass, doc, doc_tokens, ttft_ms,
total_ms. Blank lines are skipped; documents may be any, in any order. Ratios are
baseline / lmcache of the exact figures, not of the rounded ones.
"""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path

from perc.errors import InputError, bad_line

CONFIGS = ("baseline", "lmcache")
LEAST_MS, MOST_MS = 1e-9, 1e12  # whose ratios and sums are finite
Times = dict[str, dict[str, list[float]]]  # ms by configuration and pass


def summarize(lines: Iterable[str], *, source: object = "input") -> dict:
    """The object that `perc lab summarize` writes.

    Raises:
        InputError: for a line that is not as above.

    Example:
        >>> row = '{"config": "%s", "pass": "p", "ttft_ms": %s}'
        >>> summarize([row % ("baseline", 10.04), "", row % ("lmcache", 1.04)])["ratio"]
        {'p': {'p50': 9.65, 'mean': 9.65}}
    """
    times = _read(lines, source)
    found: dict = {
        config: {name: _figures(ms) for name, ms in passes.items()}
        for config, passes in times.items()
    }
    base, other = (times[config] for config in CONFIGS)
    found["ratio"] = {
        name: {
            "p50": round(statistics.median(ms) / statistics.median(other[name]), 2),
            "mean": round(statistics.fmean(ms) / statistics.fmean(other[name]), 2),
        }
        for name, ms in base.items()
        if name in other
    }
    return found


def summarize_file(path: Path) -> dict:
    """The same of a file.

    Raises:
        InputError: if it cannot be read, too.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}; give a file of JSON lines.") from None
    return summarize(text.splitlines(), source=path)


def _figures(ms: list[float]) -> dict:
    return {
        "n": len(ms),
        "p50_ms": round(statistics.median(ms), 1),
        "mean_ms": round(statistics.fmean(ms), 1),
    }


def _read(lines: Iterable[str], source: object) -> Times:
    times: Times = {config: {} for config in CONFIGS}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            config, name, ms = row["config"], row["pass"], row["ttft_ms"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise bad_line(
                source,
                number,
                f"{type(error).__name__}: {error}",
                "Give an object with config, pass and ttft_ms.",
            ) from None
        if config not in CONFIGS:
            what = f"config is {config!r}"
            raise bad_line(source, number, what, "Give baseline or lmcache.")
        if isinstance(ms, bool) or not (
            isinstance(ms, int | float) and LEAST_MS <= ms <= MOST_MS
        ):
            what = f"ttft_ms is {ms!r}"
            raise bad_line(source, number, what, "Give milliseconds above 0.")
        times[config].setdefault(str(name), []).append(float(ms))
    return times
