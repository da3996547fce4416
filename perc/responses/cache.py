"""A bounded cache of answers: exact and semantic hits, time to live, a policy.

    1. An entry whose time is over is not there.
    2. Exact: the entry of the same prompt and parameters.
    3. Semantic: of the entries with the same parameters the most alike one, if its
       cosine reaches the threshold; the least slot at a tie.
    4. To store, an answer replaces one to the same question, or takes a free slot, or
       that of the lowest score, the least recently used at a tie.

A hit is a use, and scores the entry anew; it does not make it live longer, for what was
true when it was stored may not be any more.

>>> from perc.responses.queries import ngrams, query
>>> settings = Settings(capacity=2, threshold=0.8, ttl_s=60.0)
>>> state = empty_responses(settings, embedding=512)
>>> asked = query("what is a cache", embed=ngrams)
>>> state, found = look_up(settings, state, asked, now_s=0.0)
>>> found.kind
'miss'
>>> state, _ = store(settings, state, asked, "a shelf", now_s=1.0)
>>> state, found = look_up(
...     settings, state, query("What is a cache?", embed=ngrams), now_s=2.0
... )
>>> found.kind, found.answer, round(found.similarity, 2)
('semantic', 'a shelf', 0.91)
>>> look_up(settings, state, asked, now_s=61.0)[1].kind  # its minute is over
'miss'
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import INT32_MAX, InputError, check_whole
from perc.prefix_keys import Cache, Scorer, Use
from perc.responses.queries import Query, cosines
from perc.types import AnyPolicy


@dataclass(frozen=True)
class Settings:
    """What a cache of answers is to be.

    Raises:
        InputError: if a value is out of range, or the policy cannot score a use when
            it happens; `perc.responses.log` replays a log under every other one.
    """

    capacity: int  # C, answers
    threshold: float | None = None  # least cosine of a semantic hit, None: exact only
    ttl_s: float = math.inf  # from the moment of storing
    policy: AnyPolicy | None = None  # the lowest score leaves first, None: LRU
    cost: PrefillCost = DEFAULT_COST  # prices the feature `recompute_s`: the prompt's
    scorer: Scorer | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_whole("a cache of answers", "capacity", self.capacity, 1, INT32_MAX)
        if self.threshold is not None and not -1 <= self.threshold <= 1:
            raise InputError(f"threshold is {self.threshold}, must be from -1 to 1.")
        if not self.ttl_s > 0:
            raise InputError(f"ttl_s is {self.ttl_s}, must be more than 0 seconds.")
        scorer = None if self.policy is None else Scorer(self.policy, self.cost)
        object.__setattr__(self, "scorer", scorer)


class Tally(NamedTuple):
    """What happened so far."""

    exact: int = 0  # hits
    semantic: int = 0  # hits
    misses: int = 0
    stored: int = 0
    replaced: int = 0  # by an answer to the same question
    expired: int = 0  # slots that were taken again after their time
    evicted: int = 0  # by the policy

    @property
    def hit_ratio(self) -> float:
        """Hits / look-ups, 0 before the first."""
        hits = self.exact + self.semantic
        return hits / (hits + self.misses) if hits + self.misses else 0.0


class Responses(NamedTuple):
    """C slots."""

    held: np.ndarray  # bool[C], there is an answer, perhaps an old one
    digest: np.ndarray  # u64[C, 4]
    scope: np.ndarray  # u64[C, 4]
    embedding: np.ndarray  # f64[C, E]
    answer: np.ndarray  # object[C]
    tokens: np.ndarray  # i64[C], of the prompt
    expires_s: np.ndarray  # f64[C]
    key: np.ndarray  # f64[C], the lowest leaves first
    own: np.ndarray  # f32[C, W], the policy's notes
    last: np.ndarray  # i64[C], index of the last use
    frequency: np.ndarray  # i64[C], uses since it was stored, storing included
    clock: int  # uses so far
    highest: float  # key of any victim so far
    tally: Tally


class Found(NamedTuple):
    """What a look-up gave."""

    kind: str  # exact, semantic or miss
    answer: Any  # None at a miss
    slot: int  # -1 at a miss
    similarity: float  # the best cosine that was seen; 1 if exact; nan if none


def empty_responses(settings: Settings, *, embedding: int = 0) -> Responses:
    """No answers; embeddings have E = `embedding` numbers.

    Raises:
        InputError: if there is a threshold but nothing to compare.
    """
    if settings.threshold is not None and embedding < 1:
        raise InputError("a threshold needs embeddings; say how long they are.")
    n = settings.capacity
    return Responses(
        held=np.zeros(n, bool),
        digest=np.zeros((n, 4), np.uint64),
        scope=np.zeros((n, 4), np.uint64),
        embedding=np.zeros((n, embedding)),
        answer=np.full(n, None, object),
        tokens=np.zeros(n, np.int64),
        expires_s=np.full(n, -math.inf),
        key=np.zeros(n),
        own=np.zeros((n, settings.scorer.width if settings.scorer else 0), np.float32),
        last=np.full(n, -1, np.int64),
        frequency=np.zeros(n, np.int64),
        clock=0,
        highest=0.0,
        tally=Tally(),
    )


def look_up(
    settings: Settings,
    state: Responses,
    asked: Query,
    *,
    now_s: float,
    use: Use | None = None,
) -> tuple[Responses, Found]:
    """An answer, if there is one.

    Args:
        settings: of the cache.
        state: before.
        asked: the question.
        now_s: seconds from any origin, not falling.
        use: what is known of who asks, for the policy; its `time_s` is `now_s`.

    Raises:
        InputError: if embeddings differ in length, or the time is NaN.
    """
    found = _find(settings, state, asked, now_s)
    tally = state.tally
    if found.slot < 0:
        return state._replace(tally=tally._replace(misses=tally.misses + 1)), found
    state = _used(settings, state, found.slot, now_s, use, state.highest)
    more = {found.kind: getattr(tally, found.kind) + 1}
    return state._replace(tally=tally._replace(**more)), found


def store(
    settings: Settings,
    state: Responses,
    asked: Query,
    answer: Any,
    *,
    now_s: float,
    use: Use | None = None,
) -> tuple[Responses, Any]:
    """Keeps an answer; arguments of `look_up`.

    Returns:
        The state, and the answer that the policy put out for it, None if there is none.

    Raises:
        InputError: if embeddings differ in length, or the time is NaN.
    """
    _check(state, asked, now_s)
    tally, gone, before = state.tally, None, state.highest
    same = state.held & (state.digest == asked.digest).all(axis=1)
    live = state.held & (state.expires_s > now_s)
    if same.any():
        slot, change = int(same.argmax()), "replaced"
    elif not state.held.all():
        slot, change = int((~state.held).argmax()), None
    elif not live.all():
        slot, change = int((~live).argmax()), "expired"
    else:
        slot, change = int(np.lexsort((state.last, state.key))[0]), "evicted"
        gone = state.answer[slot]
        state = state._replace(highest=max(state.highest, float(state.key[slot])))
    if change is not None:
        tally = tally._replace(**{change: getattr(tally, change) + 1})
    state = state._replace(
        held=_set(state.held, slot, True),
        digest=_set(state.digest, slot, asked.digest),
        scope=_set(state.scope, slot, asked.scope),
        embedding=_set(state.embedding, slot, asked.embedding),
        answer=_set(state.answer, slot, answer),
        tokens=_set(state.tokens, slot, asked.tokens),
        expires_s=_set(state.expires_s, slot, now_s + settings.ttl_s),
        frequency=_set(state.frequency, slot, 0),
        own=_set(state.own, slot, 0.0),
        tally=tally._replace(stored=tally.stored + 1),
    )
    # As in the engine: a victim moves the clock of GDSF and its like for later uses,
    # for this one only where the rule says so.
    first = getattr(getattr(settings.policy, "rule", None), "evict_first", False)
    highest = state.highest if first else before
    return _used(settings, state, slot, now_s, use, highest), gone


def live_answers(state: Responses, now_s: float) -> int:
    """How many answers could be found now."""
    return int((state.held & (state.expires_s > now_s)).sum())


def _find(settings: Settings, state: Responses, asked: Query, now_s: float) -> Found:
    _check(state, asked, now_s)
    live = state.held & (state.expires_s > now_s)
    same = live & (state.digest == asked.digest).all(axis=1)
    if same.any():
        slot = int(same.argmax())
        return Found("exact", state.answer[slot], slot, 1.0)
    alike = live & (state.scope == asked.scope).all(axis=1)
    if settings.threshold is None or not alike.any():
        return Found("miss", None, -1, math.nan)
    near = np.where(alike, cosines(state.embedding, asked.embedding), -math.inf)
    slot = int(near.argmax())
    if near[slot] >= settings.threshold:
        return Found("semantic", state.answer[slot], slot, float(near[slot]))
    return Found("miss", None, -1, float(near[slot]))


def _used(
    settings: Settings,
    state: Responses,
    slot: int,
    now_s: float,
    use: Use | None,
    highest: float,
) -> Responses:
    """A use of an entry: the policy scores it; `highest` key of the victims so far."""
    frequency = int(state.frequency[slot]) + 1
    key, own = 0.0, state.own[slot]
    if settings.scorer is not None:
        tokens = int(state.tokens[slot])
        facts = {
            **(use or Use())._asdict(),
            "time_s": now_s,
            "step": state.clock,
            "depth": 0,
            "tokens": tokens,
            "prefix_tokens": 0,
            "recompute_s": float(settings.cost.prefill_s(tokens)),
            "frequency": frequency,
            "input_tokens": tokens,
            "request_blocks": 1,
        }
        cache = Cache(highest, int(state.held.sum()), settings.capacity)
        before = state.key[slot : slot + 1]
        keys, notes = settings.scorer.keys(facts, before, own[None], cache)
        key, own = float(keys[0]), notes[0]
    return state._replace(
        key=_set(state.key, slot, key),
        own=_set(state.own, slot, own),
        last=_set(state.last, slot, state.clock),
        frequency=_set(state.frequency, slot, frequency),
        clock=state.clock + 1,
    )


def _check(state: Responses, asked: Query, now_s: float) -> None:
    if math.isnan(now_s):  # later than nothing: every answer would seem gone
        raise InputError("now_s is nan, must be seconds; mend the clock.")
    have, given = state.embedding.shape[1], len(asked.embedding)
    if have != given:
        raise InputError(
            f"an embedding of {given} numbers in a cache of {have}; use one embedding."
        )


def _set(column: np.ndarray, slot: int, value: Any) -> np.ndarray:
    """A copy with one entry changed: states are never changed in place."""
    column = column.copy()
    column[slot] = value
    return column
