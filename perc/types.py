"""The nouns of perc: what goes into a cache simulation and what comes out.

Axes, the same letters everywhere:

    N  block accesses of a trace      R  requests           M  distinct blocks
    L  blocks of one request          C  slots of a cache   K  capacities
    P  policies (or configurations)                V  victims of one request

A *request* is a prompt, cut into blocks of `block_tokens` tokens. A *block* is
identified by its content and everything before it, so the blocks of a prompt form
a chain, and the chains of a trace form a forest of prefixes: block `b` can be used
only if its parent is in the cache as well.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from perc.errors import InputError, check_number

Array = np.ndarray | jax.Array
Feature = Any  # an Array, or None where the policy does not name it


def _static(**kwargs: Any) -> Any:
    return field(metadata=dict(static=True), **kwargs)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trace:
    """LLM traffic, ready for simulation. Built once, by a reader or a generator.

    Build one with `perc.load`, `perc.make` or `perc.traces.build.build_trace`, which
    check and intern; the constructor itself checks nothing.
    """

    # One entry an access, in the order in which the server sees them.
    block: np.ndarray  # i32[N], dense id, numbered by first appearance
    request: np.ndarray  # i32[N], the request that makes this access
    depth: np.ndarray  # i32[N], position in the prompt, 0 = root
    tokens: np.ndarray  # i32[N], tokens in the block (the last one may be partial)
    prev: np.ndarray  # i32[N], access index of the same block before, -1 = none
    next: np.ndarray  # i32[N], access index of the same block after, -1 = none
    # One entry a request, in order of arrival.
    start: np.ndarray  # i32[R], its accesses are start <= i < stop
    stop: np.ndarray  # i32[R]
    arrival_s: np.ndarray  # f64[R], seconds from the first request
    input_tokens: np.ndarray  # i32[R], the whole prompt, also what fills no block
    output_tokens: np.ndarray  # i32[R]
    session: np.ndarray  # i32[R], dense id of the conversation or agent run
    turn: np.ndarray  # i32[R], 1 = first request of its session
    kind: np.ndarray  # i32[R], index into `kinds`
    priority: np.ndarray  # i32[R], higher is more important, 0 = neutral
    deadline_s: np.ndarray  # f64[R], seconds after arrival, inf = none
    # Static.
    block_tokens: int = _static()  # tokens of a full block
    source: str = _static()  # where the trace came from, for people
    kinds: tuple[str, ...] = _static(default=("request",))  # names of request kinds
    sessions_inferred: bool = _static(default=False)  # by prefix extension
    tells_blocks: bool = _static(default=True)  # False: arrivals and lengths only

    @property
    def n_accesses(self) -> int:
        """N, the number of block accesses."""
        return len(self.block)

    @property
    def n_requests(self) -> int:
        """R, the number of requests."""
        return len(self.start)

    @property
    def n_blocks(self) -> int:
        """M, the number of distinct blocks: the working set."""
        return int(self.block.max()) + 1 if len(self.block) else 0

    @property
    def longest_request(self) -> int:
        """Blocks of the longest request."""
        return int((self.stop - self.start).max()) if len(self.start) else 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Features:
    """What a score may see of an access; every array has the same shape [...].

    `history` alone has one axis more. A feature that the policy did not name in
    `Policy.uses` is None. All but `next_use` are causal: they use this request and
    earlier ones only.
    """

    step: Feature = None  # i32, index of the request, the cache's clock
    time_s: Feature = None  # f32, arrival from the trace's start; after a day to 8 ms
    depth: Feature = None  # i32, position of the block in its prompt
    tokens: Feature = None  # i32, tokens in the block
    prefix_tokens: Feature = None  # i32, tokens of the prompt before the block
    recompute_s: Feature = None  # f32, seconds to prefill the block again
    frequency: Feature = None  # i32, requests that used the block, this included
    priority: Feature = None  # i32, of the request
    turn: Feature = None  # i32, of the request
    kind: Feature = None  # i32, of the request
    input_tokens: Feature = None  # i32, length of the prompt
    request_blocks: Feature = None  # i32, blocks of the prompt
    mean_gap_s: Feature = None  # f32, mean of the session's last 20 gaps, nan = none
    resume_p: Feature = None  # f32, P(used again), from past uses of its class
    sessions: Feature = None  # i32, distinct sessions that used the block so far
    history: Feature = None  # f32[..., H], what a server remembers (perc.history.NAMES)
    next_use: Feature = None  # i32, request that uses it next, 2**31 - 1 = never


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Policy:
    """A replacement policy as data: parameters and one pure function.

    `score(params, features)` gives f32[...], one value an access, and **the lowest
    score leaves first**. Ties: least recent first, then deepest first. A block keeps
    the score of its last access; time enters by comparison with newer scores.

    Policies that share `score` and differ in `params` share one compiled program.
    """

    params: Any  # pytree of arrays and numbers: what a sweep varies
    score: Callable[[Any, Features], Any] = _static()
    name: str = _static()
    uses: tuple[str, ...] = _static()  # names of the features that `score` reads
    # A hit sets the score again (False: it stays as set at insertion, as in FIFO).
    refresh: bool = _static(default=True)
    # Make the order safe for prefixes: along a prompt the score may not rise with
    # depth, and a block is worth the most that any of its users said so far.
    chain: bool = _static(default=False)
    # The running request's own blocks may be victims (an offload tier, which can
    # refuse to store) or not (a GPU pool, which must hold what it runs).
    bypass: bool = _static(default=False)
    clairvoyant: bool = _static(default=False)  # reads the future: a bound, no policy


class Memory(NamedTuple):
    """What the cache did, as the score of an `OnlinePolicy` sees it at one access."""

    own: jax.Array  # f32[W], the policy's notes on this block, zeros at first
    clock: jax.Array  # f32[], highest key of any victim so far (GreedyDual's L)
    resident: jax.Array  # bool[], the block was in the cache when the request came
    size: jax.Array  # i32[], blocks in the cache when the request came
    capacity: jax.Array  # i32[], C


@dataclass(frozen=True)
class Scored:
    """A rule of an `OnlinePolicy`: the block with the lowest key leaves first.

    `score(params, features, memory)` serves one access: scalars in, `(key, own)` out.
    A block keeps the key of its last access; ties leave least recent first, then
    deepest first. `own` is kept for the block's next access.
    """

    score: Callable[[Any, Features, Memory], tuple[Any, Any]]
    width: int = 0  # W, floats that the policy notes on each block
    forget: bool = True  # an eviction clears the notes
    # Whether a request's evictions, which move the clock, come before its scoring.
    evict_first: bool = False
    closed: bool = False  # a block whose child is resident is no victim


class Access(NamedTuple):
    """One access as the functions of `Listed` see it; all scalars."""

    block: jax.Array  # i32[]
    parent: jax.Array  # i32[], the block before it in the prompt, -1 = none
    features: Features  # those that the policy uses


@dataclass(frozen=True)
class Listed:
    """A rule of an `OnlinePolicy`: the policy keeps the books, in arrays of its own.

    State is any pytree, kept up by `perc.lists` or by `peek` and `.at[i].set`. Each
    access runs `note`; then `hit` if the block is resident; otherwise `evict`, if the
    cache is full, and `insert`. `evict` returns the victim, which has left the
    policy's books; to return the accessed block itself is to refuse it.
    """

    init: Callable[[Any, Any, int], Any]  # (params, capacity, M) -> state
    hit: Callable[[Any, Any, Access], Any]  # (params, state, access) -> state
    evict: Callable[[Any, Any, Access], tuple[Any, Any]]  # ... -> (state, victim)
    insert: Callable[[Any, Any, Access], Any]  # (params, state, access) -> state
    note: Callable[[Any, Any, Access], Any] | None = None  # ... -> state
    # Inside a request. Deepest first leaves the root the most recent of its prompt.
    root_first: bool = False


class Now(NamedTuple):
    """The moment at which a `Rescored` rule needs a victim; scalars but `learned`."""

    step: jax.Array  # i32[], the running request
    time_s: jax.Array  # f32[], its arrival from the trace's start
    learned: Any  # what `Rescored.learn` gave


@dataclass(frozen=True)
class Rescored:
    """A rule of an `OnlinePolicy` whose order changes while blocks idle.

    `score(params, features, now)` gives f32[S], one value a resident block, from the
    features of its last access: `now.time_s - features.time_s` is how long it has been
    idle. When a request needs room, all resident blocks are scored at once and the
    lowest leave; ties least recent first, then deepest first.

    Without `closed` or `bypass` the order does not depend on the capacity, so a larger
    cache never hits less. A parent may then leave before its child.
    """

    score: Callable[[Any, Features, Now], Any]
    # A block whose child is resident is no victim; its score is asked for again when
    # the last child has left. So no block leaves before its descendants: at each moment
    # the rule equals one that ranks a block by the highest score of its resident
    # descendants and itself.
    closed: bool = False
    # (params, trace, cost) -> any pytree of arrays, made once a trace and handed to
    # `score` as `now.learned`. Of it `score` may use what was known at `now.step`.
    learn: Callable[[Any, Trace, Any], Any] | None = None


@dataclass(frozen=True)
class Guard:
    """When an `Aged` rule must leave the choice of victims to LRU.

    `perc.guard` says how it decides, and what it promises.

    Raises:
        InputError: if a field is out of range.
    """

    share: float = (
        0.005  # of LRU's hits or misses, the fewer, that may be lost for good
    )
    patience: float = 0.1  # hits behind LRU until it falls back, in capacities
    # Hits gained or lost that count, in longest requests so far, none larger than the
    # cache; `patience` at least. The more, the slower the guard changes its mind.
    memory: float = 1.5
    credit: float = 0.005  # hits that a new policy may lose, in capacities

    def __post_init__(self) -> None:
        check_number("guard", "share", self.share, high=1.0)
        check_number("guard", "patience", self.patience)
        check_number("guard", "memory", self.memory, above=True)
        check_number("guard", "credit", self.credit)


@dataclass(frozen=True)
class Aged:
    """A rule of an `OnlinePolicy`: a block's worth follows from its class and its age.

    `classes(features)` names the class of each access by integers i32[N], level after
    level, the later ones dividing the earlier. `worth(params, reuse)` gives f32[E, K,
    A]: what a block of each of the K finest classes is worth at each age, as known at
    each epoch (`perc.reuse.Reuse`). The block that is worth least leaves first, of
    those without a resident child; ties least recent first, then deepest first.

    By age the worth of a class is taken to rise to one peak and fall (`one_peak`).
    With a `guard`, LRU's order takes the place of the rule's where that is safer.
    """

    classes: Callable[[Features], Sequence[Any]]
    worth: Callable[[Any, Any], Any]
    guard: Guard | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OnlinePolicy:
    """A policy whose order depends on what the cache did: replay it to know it.

    Examples are in-cache frequency, GreedyDual's clock, queues and ghosts. Policies
    that share `rule` and differ in `params` share one compiled program.
    """

    params: Any  # pytree of arrays and numbers: what a sweep varies
    rule: Scored | Listed | Rescored | Aged = _static()
    name: str = _static()
    uses: tuple[str, ...] = _static(default=())  # features that the rule reads
    # The running request's own blocks may be victims, as in `Policy`.
    bypass: bool = _static(default=False)
    clairvoyant: bool = _static(default=False)  # reads the future: a bound, no policy

    @property
    def score(self) -> Any:
        """There is none without a cache.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"policy {self.name!r} has no score of its own: its order depends on what "
            "the cache did. Replay it with perc.online.replay_online or perc.compare."
        )


AnyPolicy = Policy | OnlinePolicy


class Request(NamedTuple):
    """One row of a trace as `step` wants it; the blocks are padded at the end."""

    block: jax.Array  # i32[L], root first, -1 = padding
    features: Features  # [L] each


class CacheState(NamedTuple):
    """An immutable cache: what is where, and what it is worth."""

    block: jax.Array  # i32[C], block in the slot, -1 = empty
    key: jax.Array  # f32[C], score of the block, the lowest leaves first
    last: jax.Array  # i32[C], clock when the key was set, to break ties
    depth: jax.Array  # i32[C], depth of the block, to break ties
    pins: jax.Array  # i32[C], how many hold the block in place, 0 = evictable
    slot: jax.Array  # i32[M], where a block is, -1 = nowhere
    worth: jax.Array  # f32[M], highest score ever given, for `chain`, -inf = never seen
    clock: jax.Array  # i32[], requests so far


class Outcome(NamedTuple):
    """What one request met, and why the cache now looks as it does."""

    hit_blocks: jax.Array  # i32[], length of the longest resident prefix
    resident: jax.Array  # bool[L], was in the cache when the request came
    admitted: jax.Array  # bool[L], is in the cache now
    victims: jax.Array  # i32[V], evicted blocks, first victim first, -1 = padding
    victim_scores: jax.Array  # f32[V], their scores, +inf = padding


class Hits(NamedTuple):
    """What a replay counts; `perc.metrics` turns it into ratios."""

    blocks: Array  # i32[..., R], leading resident blocks of each request
    evictions: Array  # i32[...], blocks that left
