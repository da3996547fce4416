"""Fits the efficiency of a deployment to measured times of prefill and decode.

    minimise the sum over points of (ln predicted_s - ln measured_s)**2
    over mfu and mbu in (0, 1] and overhead_s >= 0

Logarithms make a point of 10 ms count as much as one of 10 s. A parameter that could
be larger, or smaller, without a change at any point is not determined, such as mfu
where every point is bound by memory: it keeps its default, and the result says so.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perc.errors import InputError, bad_line, check_number
from perc.roofline import Efficiency, Roofline

KINDS = ("prefill", "decode")
COLUMNS = ("kind", "tokens", "batch", "seconds")
LEAST = 1e-3  # of mfu and mbu
STARTS = (0.15, 0.4, 0.8)  # the roofline has a kink: several starts
POOR = 0.5  # residual from which on a fit describes nothing
NUDGE, UNMOVED = 0.01, 1e-4  # relative: a step of a parameter, and none of a time
MOST_TOKENS = 10**9


class Point(NamedTuple):
    """One measurement, of a step without a queue."""

    kind: str  # prefill: the TTFT; decode: the ITL
    tokens: int  # of the prompt, or of the context
    batch: int  # sequences of the step
    seconds: float


class Calibration(NamedTuple):
    """What was fitted, and how well it describes each point."""

    efficiency: Efficiency
    determined: tuple[str, ...]  # parameters that the points decide; others: default
    predicted_s: np.ndarray  # f64[N]
    residuals: np.ndarray  # f64[N], predicted / measured - 1

    @property
    def worst(self) -> float:
        """Largest residual, either way."""
        return float(np.abs(self.residuals).max())


def calibrate(
    ideal: Roofline, points: Sequence[Point], *, default: Efficiency | None = None
) -> Calibration:
    """Fits mfu, mbu and overhead.

    Args:
        ideal: the deployment at efficiency (1, 1, 0).
        points: measurements, at least one.
        default: of parameters that the points do not decide; None: `Efficiency`'s own.

    Raises:
        InputError: without points, or for one that is not as it must be.

    Example:
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> from perc.roofline import roofline
        >>> shape, card, ideal = model("llama-3-8b"), accelerator("l4"), (1.0, 1.0, 0.0)
        >>> ideal = roofline(shape, card, efficiency=Efficiency(*ideal))
        >>> times = {4096: 1.5, 2048: 0.75, 1024: 0.4}  # prompt tokens to seconds
        >>> points = [Point("prefill", n, 1, s) for n, s in times.items()]
        >>> fit = calibrate(ideal, points + [Point("decode", 1024, 4, 0.08)])
        >>> fit.determined, fit.worst < 0.05
        (('mfu', 'mbu', 'overhead_s'), True)
    """
    from scipy.optimize import least_squares

    if not points:
        raise InputError("no measured points; give one or more.")
    for point in points:
        _check(point)
    measured = np.array([point.seconds for point in points])

    def misfit(x: np.ndarray) -> np.ndarray:
        return np.log(_predict(ideal, points, _efficiency(x)) / measured)

    low, high = np.log(LEAST), 0.0
    most = float(measured.min())
    bounds = ([low, low, 0.0], [high, high, most])
    fits = [
        least_squares(
            misfit,
            [np.log(mfu), np.log(mbu), most / 100],
            bounds=bounds,
            x_scale=[1.0, 1.0, most],
            xtol=1e-12,
            ftol=1e-12,
            gtol=1e-12,
        )
        for mfu in STARTS
        for mbu in STARTS
    ]
    best = min(fits, key=lambda fit: fit.cost)
    found = _efficiency(best.x)
    return _report(ideal, points, measured, found, default or Efficiency())


def _report(ideal, points, measured, found: Efficiency, default) -> Calibration:
    """Puts defaults where the points say nothing, and the residuals beside."""
    determined = tuple(n for n in Efficiency._fields if _felt(ideal, points, found, n))
    free = {n: v for n, v in default._asdict().items() if n not in determined}
    # A share that no point felt may still become the bottleneck at its default.
    tried = found._replace(**free)
    if free and not np.allclose(
        _predict(ideal, points, tried), _predict(ideal, points, found), rtol=1e-6
    ):
        tried = found
    predicted = _predict(ideal, points, tried)
    return Calibration(tried, determined, predicted, predicted / measured - 1)


def _felt(ideal, points, found: Efficiency, name: str) -> bool:
    """Whether some point feels a step of a parameter, up as well as down.

    One way is not enough: where every point is bound by memory, the fit may end at the
    very mfu below which the first one would not be.
    """
    if name == "overhead_s":
        return True  # it is a part of every time
    here = _predict(ideal, points, found)
    value = getattr(found, name)
    steps = (value * (1 + NUDGE), value / (1 + NUDGE))
    moved = (_predict(ideal, points, found._replace(**{name: v})) for v in steps)
    return all(np.abs(np.log(there / here)).max() > UNMOVED for there in moved)


def _efficiency(x: np.ndarray) -> Efficiency:
    return Efficiency(float(np.exp(x[0])), float(np.exp(x[1])), float(x[2]))


def _predict(
    ideal: Roofline, points: Sequence[Point], reached: Efficiency
) -> np.ndarray:
    cost = ideal._replace(
        flops_per_s=ideal.flops_per_s * reached.mfu,
        bytes_per_s=ideal.bytes_per_s * reached.mbu,
        overhead_s=reached.overhead_s,
    )
    tokens, batch = (
        np.array([getattr(point, name) for point in points], np.float64)
        for name in ("tokens", "batch")
    )
    prefill = np.array([point.kind == "prefill" for point in points])
    times = cost.prefill_s(tokens, 0, batch), cost.decode_s(batch, tokens)
    return np.where(prefill, *times)


def _check(point: Point) -> None:
    if point.kind not in KINDS:
        raise InputError(f"a point of kind {point.kind!r}; give prefill or decode.")
    for name in ("tokens", "batch", "seconds"):
        value = getattr(point, name)
        check_number(f"a {point.kind} point", name, value, above=True)
        if name != "seconds" and value > MOST_TOKENS:
            raise InputError(f"{name} is {value}, must be {MOST_TOKENS:,} or less.")


def read_points(path: str | Path) -> list[Point]:
    """Reads measured points from a CSV file with the columns of `COLUMNS`.

    Raises:
        InputError: naming file and line of what is not as it must be.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _points(path, csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}; give a CSV file.") from None


def _points(path: str | Path, rows: csv.DictReader) -> list[Point]:
    remedy = f"Give the columns {','.join(COLUMNS)}."
    names: list[str] = list(rows.fieldnames or ())
    for name in COLUMNS:
        if names.count(name) > 1:
            raise bad_line(path, 1, f"two columns {name!r}", "Drop one.")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise bad_line(path, 1, f"no column {missing[0]!r}", remedy)
    points = [_point(path, rows.line_num, row) for row in rows]
    if not points:
        raise bad_line(path, 2, "no measured points", remedy)
    return points


def _point(path: str | Path, line: int, row: dict[str, str]) -> Point:
    if None in row:
        raise bad_line(path, line, "more cells than columns", "Mend the line.")
    values: Iterable[str] = (row[name] or "" for name in COLUMNS)
    kind, tokens, batch, seconds = values
    try:
        point = Point(kind.strip(), int(tokens), int(batch), float(seconds))
        _check(point)
    except ValueError as error:
        raise bad_line(path, line, str(error).rstrip("."), "Mend the line.") from None
    return point
