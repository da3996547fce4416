"""A data set of conversations becomes traffic: real texts, drawn times.

Every request of a conversation sends all that was said before it, so turns share their
beginnings, and conversations that begin alike (one system prompt) share that. What is
invented: when a session starts (a Poisson process), how long its user takes for the
next turn (quantiles of the Mooncake conversation trace, from request to request), and
in which order the conversations come. A chat template's own tokens are left out.

Where more requests are wanted than the data has, conversations come again as new ones:
blocks that only this conversation has get new names, those that others share stay.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from perc.block_hashes import BlockHasher
from perc.errors import InputError, check_whole
from perc.profile import requests_of
from perc.profile_estimate import subwords
from perc.profile_rows import Dataset
from perc.traces.build import Columns, build_trace
from perc.types import Trace
from perc.workloads.chat_facts import FOLLOW_UP_GAP_S
from perc.workloads.sampling import draw_quantiles

Tokens = Callable[[str], Sequence[int]]
MOST_REQUESTS, MOST_SEED = 10_000_000, 2**63 - 1


class _Talk(NamedTuple):
    """A conversation that asks something, in tokens and blocks."""

    prompts: list[int]  # tokens of each request's prompt
    answers: list[int]
    blocks: list[int]  # ids of the full blocks of the longest prompt


def estimated_tokens() -> Tokens:
    """Token ids of the estimate: equal subwords get equal numbers."""
    number: dict[str, int] = {}
    return lambda text: [number.setdefault(s, len(number)) for s in subwords(text)]


def trace_of_dataset(
    dataset: Dataset,
    tokens: Tokens | None = None,
    *,
    requests: int | None = None,
    sessions_per_s: float = 1.0,
    block_tokens: int = 16,
    seed: int = 0,
) -> Trace:
    """Draws traffic from a data set.

    Args:
        dataset: conversations, or prompts with answers.
        tokens: token ids of a text; None: the estimate's.
        requests: of the trace, the first ones by time; None: each conversation once.
        sessions_per_s: conversations that start a second.
        block_tokens: of a block.
        seed: of order and times.

    Raises:
        InputError: for a number out of range, or a data set in which nobody asks.
    """
    if requests is not None and not 1 <= requests <= MOST_REQUESTS:
        raise InputError(f"{requests:,} requests; give 1 to {MOST_REQUESTS:,}.")
    check_whole("trace", "seed", seed, 0, MOST_SEED)
    if not 0 < sessions_per_s < np.inf:
        raise InputError(f"{sessions_per_s} sessions a second; give a rate above 0.")
    talks = _talks(dataset, tokens or estimated_tokens(), block_tokens)
    if not talks:
        raise InputError(f"{dataset.source}: nobody asks anything; nothing to replay.")
    rng = np.random.default_rng(seed)
    order = _order(rng, [len(talk.prompts) for talk in talks], requests)
    begins = np.cumsum(rng.exponential(1 / sessions_per_s, len(order)))
    shared = _shared(talks)
    names: dict[tuple[int, int], int] = {}
    rows = []
    for session, (which, begin) in enumerate(zip(order, begins.tolist(), strict=True)):
        talk, copy = talks[which], session // len(talks)
        gaps = draw_quantiles(rng, FOLLOW_UP_GAP_S, len(talk.prompts) - 1)
        times = begin + np.r_[0.0, np.cumsum(gaps)]
        chain = [
            names.setdefault((block, 0 if block in shared else copy), len(names))
            for block in talk.blocks
        ]
        for at, prompt, answer in zip(times, talk.prompts, talk.answers, strict=True):
            rows.append((float(at), session, prompt, answer, chain))
    rows.sort(key=lambda row: row[:2])
    return _trace(rows[:requests], block_tokens, f"{dataset.source}, times drawn")


def _trace(rows: list[tuple], block_tokens: int, source: str) -> Trace:
    arrival, session, prompt, answer, chain = zip(*rows, strict=True)
    counts = [tokens // block_tokens for tokens in prompt]
    ids = [i for row, n in zip(chain, counts, strict=True) for i in row[:n]]
    columns = Columns(
        arrival_s=np.array(arrival),
        input_tokens=np.array(prompt, np.int64),
        output_tokens=np.array(answer, np.int64),
        ids=np.array(ids, np.int64),
        lengths=np.array(counts, np.int64),
        session=list(session),
    )
    return build_trace(columns, block_tokens=block_tokens, source=source)


def _talks(dataset: Dataset, tokens: Tokens, block_tokens: int) -> list[_Talk]:
    hasher = BlockHasher("sha256_cbor", block_tokens=block_tokens)
    number: dict[bytes, int] = {}
    found = []
    for row in dataset.conversations:
        asked = requests_of(row.messages)
        if not asked:
            continue
        ids = [tokens(message.text) for message in row.messages]
        before = np.cumsum([0, *map(len, ids)]).tolist()
        prompts = [before[stop] for stop, _ in asked]
        answers = [0 if at is None else len(ids[at]) for _, at in asked]
        said = [token for part in ids for token in part][: prompts[-1]]
        blocks = [number.setdefault(name, len(number)) for name in hasher(said)]
        found.append(_Talk(prompts, answers, blocks))
    return found


def _order(
    rng: np.random.Generator, lengths: list[int], requests: int | None
) -> list[int]:
    """Which conversation each session holds: all once, then all again, shuffled."""
    rounds = 1 if requests is None else -(-requests // sum(lengths))
    drawn = [rng.permutation(len(lengths)) for _ in range(rounds)]
    return np.concatenate(drawn).tolist()


def _shared(talks: list[_Talk]) -> set[int]:
    """Blocks that more than one conversation has."""
    seen: set[int] = set()
    twice: set[int] = set()
    for talk in talks:
        twice |= seen.intersection(talk.blocks)
        seen.update(talk.blocks)
    return twice
