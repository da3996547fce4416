"""Mooncake traces: JSONL with `timestamp` ms, lengths and prefix-chained `hash_ids`.

One id for every 512 tokens, so there are ceil(input_length / 512), and the last block
may be partial. No session is told; it is inferred by prefix extension. An optional
`priority`, a whole number, is read too.
"""

from collections.abc import Iterator

from perc.traces.build import build_trace
from perc.traces.fields import block_ids, check_count, length, number, priority
from perc.traces.files import records
from perc.traces.formats import Options
from perc.traces.rows import Row, gather
from perc.types import Trace

BLOCK_TOKENS = 512


def read(path: str, options: Options) -> Trace:
    """Reads a Mooncake trace; `options.block_tokens` replaces 512.

    Raises:
        InputError: if the file is damaged or a line is not as it must be.
    """
    block_tokens = options.block_tokens or BLOCK_TOKENS
    columns = gather(_rows(path, options, block_tokens), path)
    return build_trace(columns, block_tokens=block_tokens, source=path)


def _rows(path: str, options: Options, block_tokens: int) -> Iterator[Row]:
    for record in records(path, options.progress):
        arrival_s = number(record, "timestamp") / 1000
        tokens = length(record, "input_length")
        ids = block_ids(record, "hash_ids")
        count = -(-tokens // block_tokens)
        check_count(record, len(ids), count, count, tokens, block_tokens)
        yield Row(
            arrival_s,
            tokens,
            length(record, "output_length"),
            ids,
            record.line,
            priority=priority(record),
        )
