"""Requests row by row, as most readers find them, gathered into `Columns`."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from perc.errors import InputError
from perc.traces.build import Columns


class Row(NamedTuple):
    """One request of a file; None is what the file does not tell."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    ids: np.ndarray
    line: int  # in the file, from 1
    session: object = None
    turn: int | None = None  # of the whole file or of no row
    kind: object = None
    priority: int = 0  # higher is more important


def gather(rows: Iterable[Row], source: str) -> Columns:
    """Columns of rows.

    Raises:
        InputError: if there is no row, or if only some rows know their turn.
    """
    listed = list(rows)
    if not listed:
        raise InputError(f"{source}: holds no request; nothing to load.")
    arrival, inputs, outputs, ids, lines, session, turn, kind, priority = zip(
        *listed, strict=True
    )
    return Columns(
        arrival_s=np.array(arrival, np.float64),
        input_tokens=np.array(inputs, np.int64),
        output_tokens=np.array(outputs, np.int64),
        ids=np.concatenate(ids),
        lengths=np.array([len(x) for x in ids], np.int64),
        session=_known(session),
        turn=_turns(turn, lines, source),
        kind=_known(kind),
        priority=np.array(priority, np.int64),
        lines=np.array(lines, np.int64),
    )


def _known(labels: tuple) -> list | None:
    return None if all(x is None for x in labels) else list(labels)


def _turns(turns: tuple, lines: tuple, source: str) -> np.ndarray | None:
    missing = [line for turn, line in zip(turns, lines, strict=True) if turn is None]
    if len(missing) == len(turns):
        return None
    if missing:
        raise InputError(
            f"{source}, line {missing[0]}: field 'turn' is missing, as on "
            f"{len(missing)} line(s); give it on every line or on none."
        )
    return np.array(turns, np.int64)
