"""SGLang's radix cache evicts by a perc policy: an `EvictionStrategy`.

    PERC_POLICY=perc python -m sglang.launch_server --model-path MODEL \\
        --radix-eviction-policy perc

SGLang calls `register` through the entry point `sglang.srt.plugins`, in each of its
processes. Without `PERC_POLICY` it does nothing.

A strategy is shown the leaves that may leave when room is needed, and no hits. So a use
is what has changed `last_access_time` since a leaf was seen last, and several uses in
between count as one. A leaf is known by the tokens before and in it, so that it is the
same to the policy when it comes back; the turn of its session is its depth in nodes.
Time is that of `last_access_time`: seconds in `RadixCache`, accesses in the unified
tree.
"""

import logging
import os
from array import array
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

logger = logging.getLogger("sglang.perc")
NAME = "perc"
FROM, BELOW = "0.5.23", "0.5.24"
START = 16  # tokens of a leaf that name it, with all before it


class PercStrategy:
    """SGLang's `EvictionStrategy` by the policy of `PERC_POLICY`.

    After a failure, and with policy `lru`, leaves leave by `last_access_time`.
    """

    def __init__(self, policy: Any = None):
        self.failures = 0
        self._scores: Any = None  # perc.bridges.item_scores.ItemScores
        self._now = float("-inf")
        try:
            self._scores = _scores(policy)
        except Exception as error:
            logger.warning("perc: %s. The radix cache keeps LRU.", error)

    def get_priority(self, node: Any) -> tuple[float, float]:
        """Of a leaf: the lowest leaves first, among equals the least recent."""
        last = node.last_access_time
        if self._scores is None:
            return (0.0, last)
        try:
            return (self._worth(node, last), last)
        except Exception as error:
            self.failures += 1
            self._scores = None
            logger.warning(
                "perc: the policy failed (%s: %s). The radix cache goes on with LRU; "
                "requests are not affected. Please report this.",
                type(error).__name__,
                error,
                exc_info=error,
            )
            return (0.0, last)

    def _worth(self, node: Any, last: float) -> float:
        from perc.bridges.item_scores import BLOCK_TOKENS

        self._now = max(self._now, last)
        scores = self._scores
        name, before, turn = _place(node)
        if scores.known_s(name) != last:
            scores.used(
                name,
                last,
                blocks=-(-len(node.key) // BLOCK_TOKENS),
                before=before // BLOCK_TOKENS,
                turn=turn,
                priority=max(min(int(node.priority or 0), 2**31 - 1), -(2**31)),
            )
        return scores.score(name, self._now)


def register() -> None:
    """Adds `perc` to SGLang's eviction policies, if `PERC_POLICY` is set."""
    if not os.environ.get("PERC_POLICY", "").strip():
        return
    try:
        from packaging.version import Version
        from sglang.srt.arg_groups import choices  # pyright: ignore
        from sglang.srt.mem_cache import utils  # pyright: ignore

        found = version("sglang")
        if not Version(FROM) <= Version(found) < Version(BELOW):
            raise RuntimeError(
                f"SGLang {found} is not one that perc was tested with ({FROM} <= "
                f"version < {BELOW})"
            )
        utils._EVICTION_POLICY_FACTORIES[NAME] = PercStrategy
        if NAME not in choices.RADIX_EVICTION_POLICY_CHOICES:
            choices.add_radix_eviction_policy_choices([NAME])
    except Exception as error:
        logger.warning("perc: %s. SGLang goes on unchanged.", error)


def _scores(policy: Any) -> Any:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the accelerator is SGLang's
    from perc.bridges.item_scores import ItemScores
    from perc.bridges.settings import from_environment

    if policy is None:
        settings = from_environment()
        if settings is None:
            raise ValueError("PERC_POLICY is not set")
        policy = settings.policy
    return ItemScores(policy)


def _place(node: Any) -> tuple[bytes, int, int]:
    """Name of a node, tokens before it, and its depth in nodes, the first ones 1.

    Nodes are split as prompts branch, so the name depends on tokens alone. It is kept
    on the node for as long as its parent stays the same.
    """
    known = getattr(node, "perc_place", None)
    if known is None or known[0] is not node.parent:
        state, before, depth = _end(node.parent)
        start = state.copy()
        start.update(_bytes(node.key, START))
        start.update(repr((node.key.extra_key, node.key.cache_salt)).encode())
        known = node.perc_place = (node.parent, (start.digest(), before, depth + 1))
    return known[1]


def _end(node: Any) -> tuple[Any, int, int]:
    """Hash of all tokens to a node's end, their number, and its depth; root 0."""
    path = []
    while node.parent is not None and not hasattr(node, "perc_end"):
        path.append(node)
        node = node.parent
    if node.parent is None:
        state, tokens, depth = blake2b(digest_size=16), 0, 0
    else:
        state, tokens, depth = node.perc_end
    for node in reversed(path):
        state = state.copy()
        state.update(_bytes(node.key, len(node.key)))
        tokens, depth = tokens + len(node.key), depth + 1
        node.perc_end = (state, tokens, depth)
    return state, tokens, depth


def _bytes(key: Any, n: int) -> bytes:
    """The first `n` tokens of a node, or all if they are fewer."""
    return array("q", key.token_ids[: min(n, len(key))]).tobytes()
