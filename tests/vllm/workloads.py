"""Traffic on which a policy can show something, and traffic on which it cannot.

    agents    sessions that grow and nearly always come back, among one-shot chats
    cyclic    documents asked about in turn: more of them than fit
    uniform   documents asked about at random: nothing can be known in advance

A pool of 128 blocks, one of them vLLM's null block, holds 127. LRU finds nothing in the
first two, or next to nothing while sessions are young: what comes between two uses of a
block is more than that. Requests come one at a time; what they say of themselves is
chosen by `hints_of`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from perc.types import Features, Policy

POOL = 128  # blocks, the null block among them
DOCUMENTS, DOCUMENT = 12, 16  # documents, and blocks of each
SESSIONS, RETURNS = 4, 0.95  # sessions at a time, and how likely one more turn is
FIRST, LONGEST = 12, 28  # blocks of a session's first prompt, and the most it grows to
CHATS, CHAT = 2, 12  # one-shot chats before each turn of an agent, and blocks of each
CHAT_RETURNS = 0.05  # what its label says; it never comes back


class Ask(NamedTuple):
    """One request."""

    prompt: list[int]
    answer: list[int]
    session: str
    turn: int
    p_resume: float  # a label, for the yardstick only
    agent: bool = False


def tokens_of(rng: np.random.Generator, n: int) -> list[int]:
    """Any tokens."""
    return rng.integers(3, 1024, n).tolist()


Draw = Callable[[np.random.Generator, int], list[int]]


def agents(
    seed: int,
    rounds: int = 40,
    block: int = 32,
    *,
    shrink: int = 1,
    draw: Draw = tokens_of,
) -> list[Ask]:
    """Each round: every session takes its next turn, two one-shot chats before each.

    A turn repeats the last prompt, its answer, and three quarters of a block that are
    new. A session that ends, or has grown to `LONGEST` blocks, makes room for another.

    Args:
        seed: of everything.
        rounds: turns of each session, or of those that take its place.
        block: tokens of a block.
        shrink: divides all lengths; for a pool that is as much smaller.
        draw: tokens that are new.
    """
    rng = np.random.default_rng(seed)

    def text(blocks: int) -> list[int]:
        return draw(rng, blocks // shrink * block - int(rng.integers(1, block)))

    texts = [text(FIRST) for _ in range(SESSIONS)]
    names, turns = list(range(SESSIONS)), [1] * SESSIONS
    found, chats = [], 0
    for _ in range(rounds):
        for place in range(SESSIONS):
            for _ in range(CHATS):
                answer = draw(rng, block // 4)
                name = f"chat {chats}"
                found.append(Ask(text(CHAT), answer, name, 1, CHAT_RETURNS))
                chats += 1
            said, answer = texts[place], draw(rng, block // 4)
            name, turn = f"agent {names[place]}", turns[place]
            found.append(Ask(said, answer, name, turn, RETURNS, agent=True))
            turns[place] += 1
            texts[place] = said + answer + draw(rng, block - block // 4)
            if rng.random() > RETURNS or len(said) >= LONGEST // shrink * block:
                texts[place], turns[place] = text(FIRST), 1
                names[place] = max(names) + 1
    return found


def cyclic(
    seed: int, rounds: int = 40, block: int = 32, *, shrink: int = 1
) -> list[Ask]:
    """A question about every document in turn; the label asks to keep the first six."""
    rng = np.random.default_rng(seed)
    texts = [tokens_of(rng, DOCUMENT // shrink * block) for _ in range(DOCUMENTS)]
    order = list(range(DOCUMENTS)) * rounds
    return _questions(rng, texts, order, block, labels=[0.95] * 6 + [0.05] * 6)


def uniform(
    seed: int, rounds: int = 40, block: int = 32, *, shrink: int = 1
) -> list[Ask]:
    """A question about any of the documents; labels say nothing."""
    rng = np.random.default_rng(seed)
    texts = [tokens_of(rng, DOCUMENT // shrink * block) for _ in range(DOCUMENTS)]
    order = rng.integers(0, DOCUMENTS, DOCUMENTS * rounds).tolist()
    return _questions(rng, texts, order, block, labels=[0.5] * DOCUMENTS)


def _questions(rng, texts, order, block, labels) -> list[Ask]:
    found, turns = [], [0] * len(texts)
    for which in order:
        turns[which] += 1
        question = tokens_of(rng, int(rng.integers(1, block // 2)))
        answer = tokens_of(rng, block // 4)
        name = f"document {which}"
        found.append(
            Ask(texts[which] + question, answer, name, turns[which], labels[which])
        )
    return found


WORKLOADS = {"agents": agents, "cyclic": cyclic, "uniform": uniform}


def hints_of(ask: Ask, say: str) -> dict[str, Any] | None:
    """What a client sends along: `nothing`, its `session`, or the `label` as well.

    A session is said as an API has it: a name, and for agents the turn. Questions about
    a document are no conversation.
    """
    if say == "nothing":
        return None
    if say == "label":
        return {"perc_priority": round(100 * ask.p_resume)}
    if ask.session.startswith("document"):
        return {"perc_session": f"{ask.session}, question {ask.turn}", "perc_turn": 1}
    return {"perc_session": ask.session, "perc_turn": ask.turn}


def serve(manager, asks: Sequence[Ask], said: str, gaps_s: Sequence[float]) -> float:
    """Share of the prompt tokens that a `manager.Manager` finds in its cache.

    Args:
        manager: of `POOL - 1` blocks, or of a pool that is shrunk like the requests.
        asks: the requests, one at a time.
        said: what clients say, see `hints_of`.
        gaps_s: seconds before each request.
    """
    for number, (ask, gap_s) in enumerate(zip(asks, gaps_s, strict=True)):
        manager.clock.now_s += gap_s
        request = manager.request(number, ask.prompt, hints_of(ask, said))
        assert manager.start(request) and manager.append(request, ask.answer)
        manager.stop(request)
    assert not manager.failures
    return sum(manager.hits) / sum(len(ask.prompt) for ask in asks)


def labelled(half_life: float = 40.0) -> Policy:
    """The yardstick, which is told how likely each request is to come back.

    A virtual release time, LRU with credit for what is likely to return:

        score = time + half_life * log2(priority / 100)
    """
    params = {"half_life": np.float32(half_life)}
    return Policy(params, _score, "labelled", uses=("time_s", "priority"), chain=True)


def _score(params: dict, f: Features) -> np.ndarray:
    p = np.asarray(f.priority, np.float32) / 100
    return np.asarray(f.time_s + params["half_life"] * np.log2(p), np.float32)
