"""A trace's name by its content."""

import hashlib

import numpy as np

from perc.types import Trace

COLUMNS = {  # what the others follow from, in the order in which it is hashed
    "block": "<i4",
    "start": "<i4",
    "stop": "<i4",
    "tokens": "<i4",
    "arrival_s": "<f8",
    "input_tokens": "<i4",
    "output_tokens": "<i4",
    "session": "<i4",
    "turn": "<i4",
    "kind": "<i4",
    "priority": "<i4",
    "deadline_s": "<f8",
}


def hash_of(trace: Trace) -> str:
    """sha256 of the traffic itself, whatever file or generator it came from.

    The names of trace and kinds do not enter it, nor do the machine's byte order and
    the integer type of a column.

    Example:
        >>> import perc
        >>> hash_of(perc.make("zipf")) == hash_of(perc.make("zipf", seed=1))
        False
    """
    digest = hashlib.sha256()
    for name, dtype in COLUMNS.items():
        digest.update(np.ascontiguousarray(getattr(trace, name), dtype).tobytes())
    return digest.hexdigest()
