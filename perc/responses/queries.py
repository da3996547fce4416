"""What makes two questions the same.

    exact     SHA-256 of the parameters and the prompt: both are equal to the byte
    semantic  cosine of two embeddings, under equal parameters

An embedding is any function from texts to rows. `ngrams` needs no model: it counts runs
of three characters, so it sees spelling, not meaning. Use a model's for the latter.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from perc.errors import InputError

Embed = Callable[[Sequence[str]], Any]  # n texts -> [n, E]
GRAM = 3


class Query(NamedTuple):
    """A question, as the cache knows it."""

    digest: np.ndarray  # u64[4], of prompt and parameters
    scope: np.ndarray  # u64[4], of the parameters
    embedding: np.ndarray  # f64[E]; E = 0: exact only
    tokens: int  # of the prompt


def query(
    prompt: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    embed: Embed | None = None,
    tokens: int | None = None,
) -> Query:
    """Makes a question comparable.

    Args:
        prompt: all of the text.
        parameters: whatever changes the answer: model, temperature, tools. Plain JSON
            values under names that are strings; their order does not count.
        embed: None: exact hits only.
        tokens: of the prompt; None: its words, which is enough to rank by.

    Raises:
        InputError: if the parameters are no JSON, or an embedding is no finite row.

    Example:
        >>> a = query("hello", {"model": "m", "seed": 1})
        >>> b = query("hello", {"seed": 1, "model": "m"})
        >>> [bool((a.digest == x.digest).all()) for x in (b, query("hello"))]
        [True, False]
    """
    given = dict(parameters or {})
    try:
        told = json.dumps(
            given, sort_keys=True, separators=(",", ":"), allow_nan=False
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"parameters {parameters!r}: {error}; give JSON.") from None
    _check_names(given)
    text = prompt.encode("utf-8", "surrogatepass")
    # The length keeps a parameter's end apart from the prompt's beginning.
    whole = len(told).to_bytes(8, "big") + told + text
    return Query(
        digest=_words(whole),
        scope=_words(told),
        embedding=np.zeros(0) if embed is None else _row(embed, prompt),
        tokens=len(prompt.split()) if tokens is None else tokens,
    )


def cosines(rows: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Cosine f64[C] of each row [C, E] with one [E]; 0 where either is all zeros.

    A row that equals `one` gives exactly 1: all sums are taken in one order.
    """
    product, own = (rows * one).sum(axis=1), (rows * rows).sum(axis=1)
    length = np.sqrt(own * (one[None] * one).sum(axis=1))
    return np.divide(product, length, out=np.zeros(len(rows)), where=length > 0)


def ngrams(texts: Sequence[str], size: int = 512) -> np.ndarray:
    """Counts f64[n, size] of runs of three characters, hashed, in lower case.

    Example:
        >>> a, b, c = ngrams(["What is a cache?", "what is a cache", "Boil two eggs."])
        >>> cosines(np.stack([b, c]), a).round(2).tolist()
        [0.91, 0.0]
    """
    counts = np.zeros((len(texts), size))
    for row, text in zip(counts, texts, strict=True):
        padded = f"  {' '.join(text.lower().split())} "
        for i in range(len(padded) - GRAM + 1):
            gram = padded[i : i + GRAM].encode("utf-8", "surrogatepass")
            row[zlib.crc32(gram) % size] += 1
    return counts


def _check_names(value: Any) -> None:
    """Python writes {1: 0} as {"1": 0}; in JSON only the latter is an object."""
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise InputError(
                    f"parameters: a name is {name!r}, must be a string; give "
                    f"{str(name)!r} if that is meant."
                )
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _check_names(part)


def _words(data: bytes) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(data).digest(), "<u8")


def _row(embed: Embed, prompt: str) -> np.ndarray:
    found = np.asarray(embed([prompt]), np.float64)
    if found.ndim != 2 or len(found) != 1 or not np.isfinite(found).all():
        raise InputError(
            f"the embedding of {prompt[:40]!r} has shape {found.shape}; of n texts it "
            "must be n rows of finite numbers."
        )
    return found[0]
