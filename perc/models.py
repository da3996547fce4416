"""Shapes of language models: what their size, cost and KV cache follow from.

A shape holds what a `config.json` states. Everything else is counted from it:

    parameters = embeddings + layers * (attention + MLP or experts + norms)

Query heads cost FLOPs, KV heads cost memory; mixing them up overstates the cache of a
model with grouped-query attention four to eight times. Multi-head latent attention
stores one latent and one rotated key a token instead of keys and values of every head.
"""

import math
from dataclasses import dataclass

from perc.errors import InputError, check_whole

MOST = 2**40  # of any number in a shape


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (MLA).

    References:
        DeepSeek-AI 2024, "DeepSeek-V2", section 2.1: d_c, d_h^R, d_h and d_c'.
    """

    kv_rank: int  # numbers of the latent that stands for keys and values
    rope: int  # numbers of the rotated key that all heads share
    nope: int  # numbers of a head's key without rotation
    value: int  # numbers of a head's value
    query_rank: int = 0  # 0: queries are not compressed


@dataclass(frozen=True)
class Experts:
    """The mixture of experts (MoE) in some of the layers."""

    count: int  # routed experts of a layer
    active: int  # routed experts that a token visits in a layer
    width: int  # of one expert's MLP
    layers: int  # layers that have experts; the others have a dense MLP
    shared_width: int = 0  # of the MLP that every token visits beside them


@dataclass(frozen=True)
class ModelShape:
    """A model as its configuration states it.

    Raises:
        InputError: for a size that is not a whole number of 1 or more, KV heads that do
            not divide the query heads, or windows that do not repeat over the layers.
    """

    name: str
    layers: int
    hidden: int
    query_heads: int
    kv_heads: int  # under MLA as many as query heads; the cache does not depend on them
    head_size: int
    mlp: int  # width of a dense MLP, 0 where every layer has experts
    vocabulary: int
    tied: bool = False  # input and output embeddings are one matrix
    latent: Latent | None = None
    experts: Experts | None = None
    windows: tuple[int, ...] = ()  # one period of layers, repeated; 0 = all tokens
    weights: str = "bf16"  # format in which they are published
    published: float | None = None  # parameters as the source states them
    published_active: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "query_heads", "head_size", "vocabulary"):
            check_whole(self.name, name, getattr(self, name), 1, MOST)
        check_whole(self.name, "mlp", self.mlp, 0 if self.experts else 1, MOST)
        check_whole(self.name, "kv_heads", self.kv_heads, 1, self.query_heads)
        if self.experts:
            owner, experts = f"{self.name}, experts", self.experts
            check_whole(owner, "count", experts.count, 1, MOST)
            check_whole(owner, "active", experts.active, 1, experts.count)
            check_whole(owner, "width", experts.width, 1, MOST)
            check_whole(owner, "layers", experts.layers, 1, self.layers)
        if self.query_heads % self.kv_heads:
            raise InputError(
                f"{self.name}: query heads of a KV head are {self.query_heads} / "
                f"{self.kv_heads}, must be a whole number; give other kv_heads."
            )
        for window in self.windows:
            check_whole(self.name, "a window", window, 0, MOST)

    @property
    def window_layers(self) -> dict[float, int]:
        """Layers by window in tokens, infinity for those that see everything.

        >>> shape = ModelShape("toy", 5, 8, 2, 1, 4, 16, 100, windows=(128, 0))
        >>> shape.window_layers
        {128.0: 3, inf: 2}
        """
        period = self.windows or (0,)
        found: dict[float, int] = {}
        for layer in range(self.layers):
            window = float(period[layer % len(period)]) or math.inf
            found[window] = found.get(window, 0) + 1
        return dict(sorted(found.items()))

    @property
    def embedding_parameters(self) -> int:
        """Of the input embedding and the output layer, which may be one matrix."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def attention_parameters(self) -> int:
        """Of one layer, without biases."""
        if self.latent:
            return self._latent_parameters(self.latent)
        heads = 2 * self.query_heads + 2 * self.kv_heads
        return self.hidden * self.head_size * heads

    def _latent_parameters(self, latent: Latent) -> int:
        key = latent.nope + latent.rope
        query = latent.query_rank * (self.hidden + self.query_heads * key)
        if not latent.query_rank:
            query = self.hidden * self.query_heads * key
        down = self.hidden * (latent.kv_rank + latent.rope)
        up = latent.kv_rank * self.query_heads * (latent.nope + latent.value)
        return query + down + up + self.query_heads * latent.value * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Of all routed experts of all layers, 0 in a dense model."""
        if not self.experts:
            return 0
        one = 3 * self.hidden * self.experts.width
        return one * self.experts.count * self.experts.layers

    @property
    def parameters(self) -> int:
        """All of them, without biases and the norms of queries and keys.

        >>> ModelShape("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256).parameters
        8030261248
        """
        return self._common_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token passes through, both embeddings included."""
        if not self.experts:
            return self.parameters
        share = self.expert_parameters // self.experts.count
        return self._common_parameters + share * self.experts.active

    @property
    def _common_parameters(self) -> int:
        """All but the routed experts. MLPs are gated: up, gate and down."""
        dense = self.layers - (self.experts.layers if self.experts else 0)
        total = self.embedding_parameters + dense * 3 * self.hidden * self.mlp
        total += self.layers * self.attention_parameters
        total += (2 * self.layers + 1) * self.hidden  # norms
        if self.experts:
            beside = 3 * self.experts.shared_width + self.experts.count  # and a router
            total += self.experts.layers * self.hidden * beside
        return total
