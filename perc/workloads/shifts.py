"""Traffic that changes: traces one after the other, or taking turns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perc.errors import InputError
from perc.workloads.arguments import at_least, positive

if TYPE_CHECKING:
    from perc.types import Trace


def take_turns(
    traces: Sequence["Trace"], *, requests: int | None = None, requests_per_s: float = 1
) -> "Trace":
    """Joins traces that share no block, each going on where it was interrupted.

    Args:
        traces: of one block size, one or more. A trace that is used up drops out.
        requests: of one trace before the next one's turn; None: all of them, so that
            one trace follows the other.
        requests_per_s: at even distances, since the traces' own times do not fit
            together.

    Returns:
        A trace of all requests, with the kinds and sessions of each trace apart.

    Raises:
        InputError: for no trace, traces of several block sizes, or an argument out of
            range.
    """
    from perc.traces.build import Columns, build_trace  # slow: imports jax

    positive(requests_per_s=requests_per_s)
    if requests is not None:
        at_least(1, requests=requests)
    sizes = sorted({trace.block_tokens for trace in traces})
    if len(sizes) != 1:
        raise InputError(f"traces of block_tokens {sizes}; give traces of one size.")
    own = [np.arange(trace.n_requests) for trace in traces]
    of = np.repeat(np.arange(len(traces)), [len(each) for each in own])
    turn = np.concatenate(own) // (requests or max(1, *map(len, own)))
    # By turn, then by trace; inside both the order of the trace.
    order = np.lexsort((of, turn))
    lengths = _joined(traces, [t.stop - t.start for t in traces])
    first = np.cumsum(lengths) - lengths
    moved = lengths[order]
    within = np.arange(moved.sum()) - np.repeat(np.cumsum(moved) - moved, moved)
    n_blocks = np.cumsum([0, *(trace.n_blocks for trace in traces)])
    n_sessions = np.cumsum([0, *(t.session.max(initial=-1) + 1 for t in traces)])
    ids = _joined(traces, [t.block + n for t, n in zip(traces, n_blocks, strict=False)])
    sessions = [t.session + n for t, n in zip(traces, n_sessions, strict=False)]
    kinds = [
        np.array([f"{i}:{kind}" for kind in trace.kinds])[trace.kind]
        for i, trace in enumerate(traces)
    ]
    columns = Columns(
        arrival_s=np.arange(len(order)) / requests_per_s,
        input_tokens=_joined(traces, [t.input_tokens for t in traces])[order],
        output_tokens=_joined(traces, [t.output_tokens for t in traces])[order],
        ids=ids[np.repeat(first[order], moved) + within],
        lengths=moved,
        session=_joined(traces, sessions)[order],
        kind=_joined(traces, kinds)[order],
    )
    source = f"turns of {requests or 'all'}: {', '.join(t.source for t in traces)}"
    return build_trace(columns, block_tokens=sizes[0], source=source)


def _joined(traces, columns) -> np.ndarray:
    return np.concatenate(columns)
