"""T-LRU: first what can be computed again within the time to first token."""

import jax
import jax.numpy as jnp

from perc.errors import check_number
from perc.features import EXACT_FLOAT32
from perc.types import Features, Memory, OnlinePolicy, Scored


def t_lru(*, xi_tokens: float = 1024, next_tokens: float = 512) -> OnlinePolicy:
    """LRU, after the tails that the next turn may recompute without being late.

        budget = max(L + next_tokens - xi_tokens, 0)
        safe   = tokens before the block >= budget
        key    = (-1 if safe else 0, index of the last request that used the block)

    `L` is the longest prompt that has used the block since it entered. It does not
    shrink when the tail is trimmed, so trimming stops at the budget: a prompt of 160
    tokens with 16 to come and 64 to spare keeps 112.

    Made for the tail of the latency, not for hits: each conversation loses up to
    `xi_tokens - next_tokens` tokens of its end before any loses more. One block of
    slack gives up partial last blocks, which hardly ever hit, and so hits a little more
    than LRU on conversations. More slack hits more where the cache is far too small,
    and the more it is the less elsewhere. With `xi_tokens` at most `next_tokens` it is
    LRU.

    Args:
        xi_tokens: tokens that a server can prefill within the target for the time to
            first token, the paper's xi.
        next_tokens: tokens that the next turn is expected to add, the answer included,
            the paper's Q.

    Raises:
        InputError: if a parameter is negative or no float32.

    Example:
        >>> t_lru(xi_tokens=4096).name
        't_lru'

    References:
        Zhang et al. 2025, "Tail-Optimized Caching for LLM Inference" (arXiv
        2510.15152), in blocks; SGLang, `evict_policy.py`, "tlru", in tokens as here.
    """
    params = {"xi_tokens": xi_tokens, "next_tokens": next_tokens}
    for name, value in params.items():
        check_number("t_lru", name, value)
    return OnlinePolicy(
        {name: jnp.float32(value) for name, value in params.items()},
        Scored(_score, width=1),
        "t_lru",
        uses=("step", "prefix_tokens", "input_tokens"),
    )


def _score(params: dict, f: Features, m: Memory) -> tuple[jax.Array, jax.Array]:
    longest = jnp.maximum(m.own[0], f.input_tokens)
    budget = jnp.maximum(longest + params["next_tokens"] - params["xi_tokens"], 0)
    safe = f.prefix_tokens >= budget
    # One float for both parts of the key: all that is safe lies below all steps.
    return jnp.float32(f.step) - EXACT_FLOAT32 * safe, longest[None]
