"""Keys of what a cache holds: the scores that a policy gives to a use at once."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from perc.cost import PrefillCost
from perc.errors import INT32_MAX, InputError
from perc.shapes import bucket
from perc.types import Features, Memory, OnlinePolicy, Policy, Scored

# Of `Features`, what is known when a prefix is used; a caller may give the last two.
KNOWN = (
    "step time_s depth tokens prefix_tokens recompute_s frequency priority turn kind "
    "input_tokens request_blocks mean_gap_s resume_p"
).split()


class Use(NamedTuple):
    """What is known of the request that uses a prefix; absent = neutral."""

    time_s: float = 0.0  # from any origin
    priority: int = 0  # higher is more important
    turn: int = 1  # 1 = first request of its session
    kind: int = 0
    mean_gap_s: float = math.nan  # of the session's last requests, nan = none yet
    resume_p: float = 0.25  # P(used again); the prior of `perc.features`


class Cache(NamedTuple):
    """What the cache says of itself when something is used; sizes in its own unit."""

    highest: float = 0.0  # key of any victim so far
    size: int = 0
    capacity: int = INT32_MAX


class Keyed(Protocol):
    """What a scorer reads and sets of a node of the tree."""

    tokens: tuple[int, ...]
    frequency: int  # uses, this one included, since it was stored
    key: float
    own: np.ndarray  # f32[W], the policy's notes


class Scorer:
    """Scores whole nodes: `depth` and `prefix_tokens` are those of its first token.

    Args:
        policy: scores uses, at once and from what is known then; static, or by an
            online rule of the kind `Scored`.
        cost: prices the feature `recompute_s`.

    Raises:
        InputError: if the policy cannot; every other policy of the registry replays
            the prompts as a trace (`perc.prefix_traces`).
    """

    def __init__(self, policy: Policy | OnlinePolicy, cost: PrefillCost):
        unknown = [name for name in policy.uses if name not in KNOWN]
        rule = policy.rule if isinstance(policy, OnlinePolicy) else None
        why = ""
        if unknown:
            why = f"reads {unknown[0]}"
        elif isinstance(rule, Scored) and not rule.forget:
            why = "remembers what has left"
        elif rule is not None and (not isinstance(rule, Scored) or policy.bypass):
            why = "takes more than a score a use"
        if why:
            raise InputError(
                f"policy {policy.name}: its order {why}, which cannot be kept up "
                "here. Give one that scores a use when it happens, such as lfu or "
                "gdsf; or replay a trace: perc.prefix_traces.trace_of_tokens makes "
                "one, which perc.compare takes with any policy."
            )
        self._policy, self._cost = policy, cost
        self.width = rule.width if isinstance(rule, Scored) else 0  # W

    def keys(
        self, facts: dict[str, Any], before: np.ndarray, own: np.ndarray, cache: Cache
    ) -> tuple[np.ndarray, np.ndarray]:
        """Keys f32[n] of n things that are used, and the policy's notes f32[n, W].

        Args:
            facts: features by name, each [n] or [], `frequency` among them.
            before: f32[n], their keys before; what they are where there was none.
            own: f32[n, W], the notes before.
            cache: where they lie.

        Raises:
            InputError: if a score is not a number.
        """
        policy, n = self._policy, len(before)
        room = bucket(n, 8)  # few shapes, few compilations
        columns = {name: _column(name, facts[name], room) for name in policy.uses}
        features, stored = Features(**columns), np.asarray(facts["frequency"]) > 1
        if isinstance(policy, OnlinePolicy):
            notes = np.zeros((room, self.width), np.float32)
            notes[:n] = own
            there = np.zeros(room, bool)
            there[:n] = stored
            found, noted = _score_online(policy, features, notes, there, cache)
            keys, own = np.asarray(found)[:n], np.asarray(noted)[:n]
        else:
            found = np.asarray(_score(policy, features), np.float32)
            keys = np.broadcast_to(found, room)[:n]
        if np.isnan(keys).any():
            raise InputError(f"policy {policy.name}: a score is not a number.")
        if isinstance(policy, OnlinePolicy):
            return keys, own
        if policy.chain:
            keys = np.maximum.accumulate(keys[::-1])[::-1]
            return np.where(stored, np.maximum(keys, before), keys), own
        return (keys if policy.refresh else np.where(stored, before, keys)), own

    def set_keys(
        self,
        path: Sequence[Keyed],
        use: Use,
        step: int,
        prompt_tokens: int,
        cache: Cache,
    ) -> None:
        """Sets the keys of the nodes of a path, root first, for a new use of it."""
        if not path:
            return
        facts = self._facts(path, use, step, prompt_tokens)
        before = np.array([node.key for node in path], np.float32)
        own = np.stack([node.own for node in path])
        keys, own = self.keys(facts, before, own, cache)
        for node, key, notes in zip(path, keys.tolist(), own, strict=True):
            node.key, node.own = key, notes

    def _facts(
        self, path: Sequence[Keyed], use: Use, step: int, prompt_tokens: int
    ) -> dict[str, Any]:
        size = np.array([len(node.tokens) for node in path])
        stop = np.cumsum(size)
        return {
            **use._asdict(),
            "step": step,
            "depth": stop - size,
            "tokens": size,
            "prefix_tokens": stop - size,
            "recompute_s": self._cost.recompute_s(stop, stop - size),
            "frequency": np.array([node.frequency for node in path]),
            "input_tokens": prompt_tokens,
            "request_blocks": prompt_tokens,  # a token is a block here
        }


def _column(name: str, value: Any, room: int) -> np.ndarray:
    """A feature of all nodes, padded, in the type that `Features` says."""
    dtype = np.float32 if name.endswith(("_s", "_p")) else np.int32
    column = np.ones(room, dtype)
    column[: np.size(value) if np.ndim(value) else room] = value
    return column


@jax.jit
def _score_online(policy: OnlinePolicy, features: Features, own, stored, cache: Cache):
    size, room = jnp.asarray(cache.size), jnp.asarray(cache.capacity)

    def one(features: Features, own, stored):
        highest = jnp.asarray(cache.highest, jnp.float32)
        memory = Memory(own, highest, stored, size, room)
        assert isinstance(policy.rule, Scored)
        key, noted = policy.rule.score(policy.params, features, memory)
        return jnp.asarray(key, jnp.float32), noted

    return jax.vmap(one)(features, own, stored)


@jax.jit
def _score(policy: Policy, features: Features) -> jax.Array:
    return policy.score(policy.params, features)
