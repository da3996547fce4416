"""A radix tree over tokens: which prefixes are cached, shared, locked, next to leave.

An edge holds a run of tokens that were all used together; where two prompts part, or
one ends, the run is split. So all tokens of a node have one history and one key, and

    match    the longest cached prefix of a prompt, to the token
    lock     a path that may not leave while a request reads it
    evict    leaves only, the lowest key first, from the tail to the token: no prefix
             gets a hole

The key is the score of the last use under a `Policy`, as in `perc.step`; without one
the least recently used leaf leaves first. What has left is forgotten, its frequency
too. The tree changes in place: a copy would cost as much as the tree.

>>> tree = RadixTree(capacity_tokens=6)
>>> tree.serve([1, 2, 3, 4])
Served(matched=0, added=4, evicted=0)
>>> tree.serve([1, 2, 9])
Served(matched=2, added=1, evicted=0)
>>> tree.serve([1, 2, 7, 8])  # 4, then 3, which were used least recently
Served(matched=2, added=2, evicted=1)
>>> tree.match([1, 2, 3, 4]), tree.tally.hit_ratio
(3, 0.36363636363636365)

References:
    Zheng et al. 2024, "SGLang: Efficient Execution of Structured Language Model
    Programs", section 3, RadixAttention.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perc.cost import DEFAULT_COST, PrefillCost
from perc.errors import INT32_MAX, InputError
from perc.prefix_keys import Cache, Scorer, Use
from perc.types import AnyPolicy

Tokens = tuple[int, ...]
NO_NOTES = np.zeros(0, np.float32)


class Served(NamedTuple):
    """What one prompt met, in tokens."""

    matched: int  # found in the tree
    added: int  # stored now
    evicted: int  # that left to make room


class Tally(NamedTuple):
    """Hits so far, counted in tokens of prompts that `serve` saw."""

    requests: int = 0
    asked: int = 0
    matched: int = 0
    added: int = 0
    evicted: int = 0

    @property
    def hit_ratio(self) -> float:
        """Matched tokens / tokens asked for; 0 before the first."""
        return self.matched / self.asked if self.asked else 0.0


class Node:
    """A run of tokens behind its parent's."""

    __slots__ = (
        "children",
        "frequency",
        "key",
        "last",
        "locks",
        "own",
        "parent",
        "tokens",
    )

    def __init__(self, parent: "Node | None", tokens: Tokens):
        self.parent, self.tokens = parent, tokens
        self.children: dict[int, Node] = {}  # by their first token
        self.locks = 0  # requests that read it, or something below it
        self.key = -math.inf  # score of its last use, the lowest leaves first
        self.last = -1  # index of that use
        self.frequency = 0  # uses so far
        self.own = NO_NOTES

    def above(self) -> Iterator["Node"]:
        """Itself and its ancestors, without the root."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent


class RadixTree:
    """Cached prefixes.

    Args:
        capacity_tokens: `serve` keeps no more; None: no limit.
        policy: that scores a use when it happens, such as `lfu` or `gdsf`; None: LRU.
        cost: prices the feature `recompute_s`.

    Raises:
        InputError: for a negative capacity, or a policy whose score cannot be known
            at the moment of use; the message says what to do instead.
    """

    def __init__(
        self,
        capacity_tokens: int | None = None,
        policy: AnyPolicy | None = None,
        *,
        cost: PrefillCost = DEFAULT_COST,
    ):
        if capacity_tokens is not None and capacity_tokens < 0:
            raise InputError(f"a tree of {capacity_tokens} tokens; give 0 or more.")
        self.capacity_tokens = capacity_tokens
        self.tokens = 0  # in the tree
        self.tally = Tally()
        self._scorer = None if policy is None else Scorer(policy, cost)
        self._clock = 0  # uses so far
        self._highest = 0.0  # key of any victim so far
        self._root = Node(None, ())
        self._leaves: dict[Node, None] = {}  # a set that keeps its order

    def match(self, prompt: Sequence[int]) -> int:
        """Length of the longest cached prefix of a prompt. Changes nothing."""
        return self._walk(tuple(prompt))[1]

    def insert(self, prompt: Sequence[int], use: Use | None = None) -> int:
        """Stores a prompt, or uses it again; returns how many tokens are new.

        Nothing is evicted for it.
        """
        prompt = tuple(prompt)
        node, matched = self._cut(prompt)
        if matched < len(prompt):
            child = Node(node, prompt[matched:])
            if self._scorer is not None:
                child.own = np.zeros(self._scorer.width, np.float32)
            node.children[child.tokens[0]] = child
            self._leaves.pop(node, None)
            self._leaves[child] = None
            self.tokens += len(child.tokens)
            node = child
        self._touch(list(node.above())[::-1], use or Use(), len(prompt))
        return len(prompt) - matched

    def lock(self, prompt: Sequence[int]) -> Node:
        """Keeps the longest cached prefix of a prompt until it is unlocked."""
        node, _ = self._cut(tuple(prompt))
        for held in node.above():
            held.locks += 1
        return node

    def unlock(self, node: Node) -> None:
        """Ends one `lock`, which returned the node.

        Raises:
            ValueError: if it is not locked.
        """
        held = list(node.above())
        if any(not part.locks for part in held):
            raise ValueError("the prefix is not locked; unlock each lock once")
        for part in held:
            part.locks -= 1

    def evict(self, tokens: int) -> int:
        """Frees so many tokens, or all that is not locked; returns how many left."""
        heap = [(leaf.key, leaf.last, leaf) for leaf in self._leaves if not leaf.locks]
        heapq.heapify(heap)
        freed = 0
        while heap and freed < tokens:
            # No two leaves have one last use, since a use is a single path.
            *_, leaf = heapq.heappop(heap)
            parent = leaf.parent
            self._highest = max(self._highest, leaf.key)
            freed += self._shorten(leaf, tokens - freed)
            if parent in self._leaves and not parent.locks:
                heapq.heappush(heap, (parent.key, parent.last, parent))
        return freed

    def serve(self, prompt: Sequence[int], use: Use | None = None) -> Served:
        """Looks a prompt up, makes room, stores what fits, and counts.

        The prefix that was found does not leave for the rest of its own prompt; what
        does not fit is not stored.
        """
        prompt = tuple(prompt)
        held = self.lock(prompt)
        matched, evicted = sum(len(n.tokens) for n in held.above()), 0
        room = len(prompt) - matched
        if self.capacity_tokens is not None:
            evicted = self.evict(self.tokens + room - self.capacity_tokens)
            room = min(room, max(self.capacity_tokens - self.tokens, 0))
        self.unlock(held)
        added = self.insert(prompt[: matched + room], use)
        now = (1, len(prompt), matched, added, evicted)
        self.tally = Tally(*(a + b for a, b in zip(self.tally, now, strict=True)))
        return Served(matched, added, evicted)

    def prefixes(self) -> list[Tokens]:
        """The longest cached prefixes, one a leaf, in the order of their tokens."""
        found = []
        for leaf in self._leaves:
            runs = [node.tokens for node in leaf.above()]
            found.append(tuple(token for run in reversed(runs) for token in run))
        return sorted(found)

    def _walk(self, prompt: Tokens) -> tuple[Node, int, int]:
        """The last node that a prompt reaches, tokens matched, and those within it."""
        node, matched, inside = self._root, 0, 0
        while inside == len(node.tokens) and matched < len(prompt):
            child = node.children.get(prompt[matched])
            if child is None:
                break
            node, inside = child, _common(child.tokens, prompt, matched)
            matched += inside
        return node, matched, inside

    def _cut(self, prompt: Tokens) -> tuple[Node, int]:
        """As `_walk`, with the node split where the prompt leaves it."""
        node, matched, inside = self._walk(prompt)
        if inside == len(node.tokens):
            return node, matched
        # The lower part stays the node that locks name; both were used alike.
        upper = Node(node.parent, node.tokens[:inside])
        upper.locks, upper.key, upper.last = node.locks, node.key, node.last
        upper.frequency, upper.own = node.frequency, node.own
        assert node.parent is not None
        node.parent.children[upper.tokens[0]] = upper
        node.parent, node.tokens = upper, node.tokens[inside:]
        upper.children[node.tokens[0]] = node
        return upper, matched

    def _touch(self, path: list[Node], use: Use, prompt_tokens: int) -> None:
        """The nodes of a path, root first, have a new last use."""
        for node in path:
            node.last, node.frequency = self._clock, node.frequency + 1
        if self._scorer is not None:
            room = self.capacity_tokens
            cache = Cache(
                self._highest, self.tokens, INT32_MAX if room is None else room
            )
            self._scorer.set_keys(path, use, self._clock, prompt_tokens, cache)
        else:
            for node in path:
                node.key = 0.0
        self._clock += 1

    def _shorten(self, leaf: Node, tokens: int) -> int:
        """Takes tokens off the tail of a leaf; an empty one leaves the tree."""
        freed = min(tokens, len(leaf.tokens))
        self.tokens -= freed
        if freed < len(leaf.tokens):
            leaf.tokens = leaf.tokens[: len(leaf.tokens) - freed]
            return freed
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.tokens[0]], self._leaves[leaf]
        if not parent.children and parent.parent is not None:
            self._leaves[parent] = None
        return freed


def _common(run: Tokens, prompt: Tokens, start: int) -> int:
    """How many tokens of a run equal the prompt's from `start` on."""
    n = min(len(run), len(prompt) - start)
    if run[:n] == prompt[start : start + n]:
        return n
    return next(i for i in range(n) if run[i] != prompt[start + i])
