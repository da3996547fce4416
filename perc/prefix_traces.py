"""Prompts as tokens become a trace: every block named by the whole prefix it ends."""

from collections.abc import Iterable, Sequence

import numpy as np

from perc.block_hashes import BlockHasher
from perc.errors import InputError
from perc.traces.build import Columns, build_trace
from perc.types import Trace


def trace_of_tokens(
    prompts: Iterable[Sequence[int]],
    *,
    block_tokens: int = 16,
    arrival_s: Sequence[float] | None = None,
    output_tokens: Sequence[int] | None = None,
    session: Sequence[object] | None = None,
    source: str = "prompts",
    lines: Sequence[int] | None = None,
) -> Trace:
    """Cuts prompts into full blocks and names them by chained hashes, as vLLM does.

    The tokens behind the last full block are never cached, and count as recomputed.

    Args:
        prompts: token ids of R prompts.
        block_tokens: of a block; 1 gives the radix tree's view, token by token.
        arrival_s: [R], seconds; None: one a second, in the order given.
        output_tokens: [R]; None: 0.
        session: labels [R], None in one = on its own; None: inferred by extension.
        source: name of the trace, for messages.
        lines: [R], where each prompt stands in its file, for messages.

    Returns:
        The trace, requests sorted by arrival.

    Raises:
        InputError: if a column has another length, or a value is out of range.

    Example:
        >>> trace = trace_of_tokens([[1, 2, 3, 4, 5], [1, 2, 9, 9]], block_tokens=2)
        >>> trace.block.tolist(), trace.request.tolist()
        ([0, 1, 0, 2], [0, 0, 1, 1])
    """
    if block_tokens < 1:
        raise InputError(f"{source}: a block of {block_tokens} tokens; give 1 or more.")
    number: dict[bytes, int] = {}
    hasher = BlockHasher("sha256_cbor", block_tokens=block_tokens)
    ids: list[int] = []
    counts, inputs = [], []
    for prompt in prompts:
        hashes = hasher(prompt)
        ids += [number.setdefault(name, len(number)) for name in hashes]
        counts.append(len(hashes))
        inputs.append(len(prompt))
    n = len(counts)
    if session is not None and len(session) != n:
        raise InputError(f"{len(session)} of session for {n} prompts; give one each.")
    columns = Columns(
        arrival_s=_column(arrival_s, np.arange(n), n, "arrival_s", np.float64),
        input_tokens=np.array(inputs, np.int64),
        output_tokens=_column(output_tokens, np.zeros(n), n, "output_tokens", np.int64),
        ids=np.array(ids, np.int64),
        lengths=np.array(counts, np.int64),
        session=None if session is None else list(session),
        lines=None if lines is None else np.array(lines, np.int64),
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)


def _column(given, default: np.ndarray, n: int, name: str, dtype: type) -> np.ndarray:
    column = np.asarray(default if given is None else given, dtype)
    if len(column) != n:
        raise InputError(f"{len(column)} of {name} for {n} prompts; give one each.")
    return column
