"""What a data set of prompts and answers is like in tokens."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from perc.profile_estimate import EstimateError, estimate_error, estimate_tokens
from perc.profile_rows import Dataset

Counter = Callable[[list[str]], list[int]]  # tokens of each text
TOP = 5


class Spread(NamedTuple):
    """Of tokens over rows; percentiles are linear."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: int


class RowTokens(NamedTuple):
    """One of the longest rows."""

    row_id: str
    prompt: int
    response: int
    total: int


@dataclass(frozen=True)
class Profile:
    """Tokens of the rows of a data set; a row is a conversation or a prompt."""

    source: str
    schema: str
    counted_by: str  # "estimate", or the tokenizer
    rows_profiled: int
    rows_total: int | None  # None: a stream of unknown length
    rows_without_prompt: int  # of those profiled; they count, with 0 tokens of prompt
    requests: int  # answers, and prompts without one: what a server would be asked
    prompt_tokens: Spread  # what people, systems and tools wrote in a row
    response_tokens: Spread  # what the model wrote; a row without has 0
    total_tokens: Spread
    estimated_total_tokens: int | None  # mean of a row x rows in all
    estimate_error: EstimateError | None  # of the estimate, if a tokenizer counted
    top_rows: tuple[RowTokens, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        found = asdict(self)
        for name in ("prompt_tokens", "response_tokens", "total_tokens"):
            found[name] = found[name]._asdict()
        found["top_rows"] = [row._asdict() for row in self.top_rows]
        error = self.estimate_error
        found["estimate_error"] = None if error is None else error._asdict()
        return found


def profile(
    dataset: Dataset, count: Counter | None = None, *, counted_by: str = "tokenizer"
) -> Profile:
    """Counts the tokens of every row.

    Args:
        dataset: at least one conversation.
        count: tokens of texts by a tokenizer; None estimates them.
        counted_by: name of that tokenizer.

    Returns:
        The profile. Texts of one side of a row are joined by a line break.

    Example:
        >>> from perc.profile_rows import conversations
        >>> rows = [{"prompt": "hello, world!", "answer": "camelCaseWord"}]
        >>> found = profile(conversations("made", rows))
        >>> found.prompt_tokens.mean, found.total_tokens.max
        (4.0, 7)
    """
    asked = [_said(row.messages, answer=False) for row in dataset.conversations]
    answered = [_said(row.messages, answer=True) for row in dataset.conversations]
    texts = asked + answered
    guessed = [estimate_tokens(text) if text else 0 for text in texts]
    counts, error = guessed, None
    if count is not None:
        counts = [n if text else 0 for n, text in zip(count(texts), texts, strict=True)]
        error = estimate_error(guessed, counts) if any(counts) else None
    n = len(asked)
    prompt, response = np.array(counts[:n]), np.array(counts[n:])
    total = prompt + response
    order = np.argsort(-total, kind="stable")[:TOP].tolist()
    everything = None
    if dataset.total is not None:
        everything = round(float(total.mean()) * dataset.total)
    return Profile(
        source=dataset.source,
        schema=dataset.schema,
        counted_by="estimate" if count is None else counted_by,
        rows_profiled=n,
        rows_total=dataset.total,
        rows_without_prompt=asked.count(""),
        requests=sum(len(requests_of(row.messages)) for row in dataset.conversations),
        prompt_tokens=_spread(prompt),
        response_tokens=_spread(response),
        total_tokens=_spread(total),
        estimated_total_tokens=everything,
        estimate_error=error,
        top_rows=tuple(
            RowTokens(
                dataset.conversations[at].name,
                int(prompt[at]),
                int(response[at]),
                int(total[at]),
            )
            for at in order
        ),
    )


def requests_of(messages) -> list[tuple[int, int | None]]:
    """What a server is asked in a conversation.

    Returns:
        For each request the messages of its prompt, and the index of the answer, None
        where a last prompt has none. What the model wrote before anybody asked is no
        answer; whoever asks without a word has not asked.

    Example:
        >>> from perc.profile_rows import Message
        >>> turn = Message(False, "hi"), Message(True, "hello")
        >>> requests_of([*turn, *turn, turn[0]])
        [(1, 1), (3, 3), (5, None)]
    """
    found: list[tuple[int, int | None]] = []
    waiting = asked = False
    for at, message in enumerate(messages):
        if message.answer and waiting:
            found.append((at, at))
        asked = asked or not message.answer and bool(message.text.strip())
        waiting = asked and not message.answer
    return [*found, (len(messages), None)] if waiting else found


def _said(messages, *, answer: bool) -> str:
    return "\n".join(
        message.text for message in messages if message.answer == answer
    ).strip()


def _spread(tokens: np.ndarray) -> Spread:
    p50, p95, p99 = np.percentile(tokens, [50, 95, 99]).tolist()
    return Spread(float(tokens.mean()), p50, p95, p99, int(tokens.max()))
