"""Memory of a deployed model on one accelerator: weights, KV cache, what is left.

    KV bytes of a token   = sum over layers of 2 * KV heads * vector     (GQA, MHA)
                            sum over layers of (latent rank + rope)      (MLA)
    KV bytes of a request = the same, with min(tokens, window) in each layer
    requests at once      = (memory * utilisation - weights - activations) / request

Bytes are 8-bit bytes, GiB are 2**30 of them. With tensor parallelism each of T
accelerators holds a share of the weights and of the KV heads. A head is not cut: with
more accelerators than KV heads, each holds one whole head, and a latent, which belongs
to all heads, is on every one of them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from perc.errors import InputError, check_number, check_whole
from perc.models import ModelShape

GIB = 2.0**30
HALF_BYTES = 2.0  # of a 16-bit number
BATCHED_TOKENS = 8192  # tokens of one step, for the activations


class KvFormat(NamedTuple):
    """How the cache stores a vector: a key or value of one head, or a latent."""

    name: str
    bits: int  # of a number
    scale_bytes: int = 0  # beside each vector

    def vector_bytes(self, numbers: int) -> float:
        """Bytes of one vector.

        >>> KV_FORMATS["int4"].vector_bytes(128)
        68.0
        """
        return numbers * self.bits / 8 + self.scale_bytes


# fp8 has one scale a tensor, as vLLM's `fp8` cache does: it takes no room. The integer
# formats have a float32 scale a token and head, as in vLLM's per-token-head caches.
KV_FORMATS = {
    kv.name: kv
    for kv in (
        KvFormat("fp16", 16),
        KvFormat("bf16", 16),
        KvFormat("fp8", 8),
        KvFormat("fp8-per-token", 8, 4),
        KvFormat("int8", 8, 4),
        KvFormat("int4", 4, 4),
    )
}

# Bytes of a parameter in a matrix of the layers. Embeddings stay at 16 bits.
WEIGHT_FORMATS = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": (4 + (16 + 4) / 128) / 8,  # AWQ, GPTQ: scale and zero of 128 numbers
    "mxfp4": (4 + 8 / 32) / 8,  # OCP Microscaling v1.0, 5.3: experts only
}


def kv_format(name: str) -> KvFormat:
    """The format of that name.

    Raises:
        InputError: for an unknown one.
    """
    if name in KV_FORMATS:
        return KV_FORMATS[name]
    raise InputError(f"no KV format {name!r}; there are {', '.join(KV_FORMATS)}.")


def check_tp(model: ModelShape, tp: int) -> int:
    """Returns a tensor parallelism that the model's heads can be divided by.

    Raises:
        InputError: if query heads or KV heads would have to be cut.
    """
    check_whole(model.name, "tensor parallelism", tp, 1, 2**16)
    if _divides(model, tp):
        return tp
    able = [n for n in range(1, model.query_heads + 1) if _divides(model, n)]
    raise InputError(
        f"{model.name}: {model.query_heads} query heads and {model.kv_heads} KV heads "
        f"over {tp} accelerators; give one of {', '.join(map(str, able))}."
    )


def _divides(model: ModelShape, tp: int) -> bool:
    even = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.query_heads % tp == 0 and (even or model.latent is not None)


def kv_layer_bytes(model: ModelShape, kv: str = "fp16", tp: int = 1) -> float:
    """Bytes that a token leaves in one layer's cache on one accelerator."""
    form, tp = kv_format(kv), check_tp(model, tp)
    if model.latent:
        return form.vector_bytes(model.latent.kv_rank + model.latent.rope)
    heads = max(model.kv_heads // tp, 1)
    return 2 * heads * form.vector_bytes(model.head_size)


def kv_token_bytes(model: ModelShape, kv: str = "fp16", tp: int = 1) -> float:
    """Bytes of a token in the cache of one accelerator, before any window is full.

    Example:
        >>> from perc.model_shapes import model
        >>> kv_token_bytes(model("llama-3.1-8b"))
        131072.0
        >>> kv_token_bytes(model("deepseek-v3"), "bf16")  # the same on each of 8
        70272.0
    """
    return model.layers * kv_layer_bytes(model, kv, tp)


def kv_request_bytes(
    model: ModelShape,
    tokens: ArrayLike,
    kv: str = "fp16",
    tp: int = 1,
    *,
    block_tokens: int = 1,
) -> np.ndarray:
    """Bytes f64[...] of requests of `tokens` tokens on one accelerator.

    Layers with a window keep its tokens and no more. What a paged cache allots is whole
    blocks of `block_tokens` tokens.
    """
    check_whole(model.name, "block_tokens", block_tokens, 1, 2**31)
    n = np.asarray(tokens, np.float64)
    total = np.zeros(n.shape)
    for window, layers in model.window_layers.items():
        blocks = np.ceil(np.minimum(n, window) / block_tokens)
        total += layers * blocks * block_tokens
    return total * kv_layer_bytes(model, kv, tp)


def block_bytes(
    model: ModelShape, block_tokens: int = 16, kv: str = "fp16", tp: int = 1
) -> float:
    """Bytes of a block of `block_tokens` tokens in all layers of one accelerator.

    >>> from perc.model_shapes import model
    >>> block_bytes(model("llama-3.1-8b")) / 2**20
    2.0
    """
    check_whole(model.name, "block_tokens", block_tokens, 1, 2**31)
    return block_tokens * kv_token_bytes(model, kv, tp)


def weight_bytes(model: ModelShape, weights: str | None = None, tp: int = 1) -> float:
    """Bytes of the weights on one accelerator, in their published format by default."""
    return _split_weights(model, weights, tp)[0]


def expert_bytes(model: ModelShape, weights: str | None = None, tp: int = 1) -> float:
    """Bytes of the routed experts among them."""
    return _split_weights(model, weights, tp)[1]


def _split_weights(
    model: ModelShape, weights: str | None, tp: int
) -> tuple[float, float]:
    """All weights and routed experts. The few that each rank repeats are left out."""
    name = model.weights if weights is None else weights
    if name not in WEIGHT_FORMATS:
        known = ", ".join(WEIGHT_FORMATS)
        raise InputError(f"no weight format {name!r}; there are {known}.")
    if name == "mxfp4" and not model.experts:
        raise InputError(f"{model.name}: mxfp4 is a format of experts; give int4.")
    experts, kept = model.expert_parameters, model.embedding_parameters
    if name == "mxfp4":
        kept = model.parameters - experts
    small = WEIGHT_FORMATS[name]
    total = (model.parameters - kept) * small + kept * HALF_BYTES
    tp = check_tp(model, tp)
    return total / tp, experts * small / tp


def activation_bytes(
    model: ModelShape, batched_tokens: int = BATCHED_TOKENS, tp: int = 1
) -> float:
    """An estimate of a step's activations: residual stream, and the widest layer's.

        tokens * 2 B * (2 * hidden + 3 * MLP width / tp)

    The MLP's input twice over and its three products live at once; MLPs of experts are
    as wide as those that a token visits.
    """
    check_whole(model.name, "batched_tokens", batched_tokens, 0, 2**31)
    width = model.mlp
    if model.experts:
        visited = model.experts.active * model.experts.width
        width = max(width, visited + model.experts.shared_width)
    per_token = 2 * model.hidden + 3 * width / check_tp(model, tp)
    return batched_tokens * HALF_BYTES * per_token


def kv_budget_bytes(
    memory_bytes: ArrayLike,
    weights: ArrayLike,
    *,
    utilisation: float = 0.9,
    activations: float = 0.0,
) -> np.ndarray:
    """Bytes f64[...] left for one accelerator's cache, 0 if the model does not fit.

    Raises:
        InputError: for a utilisation outside of 0..1 or negative bytes.
    """
    check_number("memory", "utilisation", utilisation, above=True, high=1.0)
    check_number("memory", "activations", activations)
    given = [np.asarray(memory_bytes, np.float64), np.asarray(weights, np.float64)]
    if any((value < 0).any() for value in given):
        raise InputError("a memory or weights of negative bytes; give 0 or more.")
    left = given[0] * utilisation - given[1] - activations
    return np.maximum(left, 0.0)


def concurrency(budget_bytes: ArrayLike, request_bytes: ArrayLike) -> np.ndarray:
    """Requests i64[...] whose caches fit at once: 0 where the model itself does not.

    Example:
        >>> budget = kv_budget_bytes(80e9, 2 * 8.03e9)
        >>> int(concurrency(budget, 4096 * 131072))
        104

    Raises:
        InputError: for requests without bytes.
    """
    size = np.asarray(request_bytes, np.float64)
    if not (size > 0).all():
        raise InputError("requests of 0 bytes; give a context of 1 token or more.")
    # A quotient that should be whole may come out below it by rounding.
    quotient = np.asarray(budget_bytes, np.float64) / size
    near = np.round(quotient)
    whole = np.abs(quotient - near) <= 1e-12 * np.maximum(near, 1.0)
    return np.where(whole, near, np.floor(quotient)).astype(np.int64)
