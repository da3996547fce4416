"""Its cards: sessions, tokens a second and dollars by its formulas, which are wrong.

    KV bytes a token  2 L H D b, with all query heads H: 4 to 8 times too many
    tokens a second   min(BW / (context * KV bytes), peak / (4 L H D * context))
                      without the weights that each step reads, and their arithmetic
    recompute seconds tokens * 4 L H D / peak   the same

`perc cost` and `perc.roofline` have the right ones. "GB" here are GiB; its H100 peaks
of the cost model are those of sparse matrices.
"""

from typing import NamedTuple

from perc.cachepilot.sessions import TOKEN_S

GIB = 2**30
TOKENS_PER_S = 35.0  # that it prices a card at
CLAIMED_SAVING = 0.251  # of the published table
BUDGET_CONTEXT, SCORE_CONTEXT = 512, 2048
BYTES = {"fp16": 2, "int8": 1, "fp8": 1}


class Shape(NamedTuple):
    """A model as it sees it."""

    parameters: float
    layers: int
    heads: int
    head_size: int

    def kv_bytes(self, kv: str = "fp16") -> int:
        """Of a token."""
        return 2 * self.layers * self.heads * self.head_size * BYTES[kv]

    @property
    def pair_flops(self) -> int:
        """Of a query and a key."""
        return 4 * self.layers * self.heads * self.head_size

    def usable_bytes(self, memory_gib: float) -> float:
        """Beside two bytes a parameter."""
        return memory_gib * GIB - 2 * self.parameters


class Card(NamedTuple):
    """Of the cost model."""

    memory_gib: float
    tflops: float
    usd_per_hour: float


class Scored(NamedTuple):
    """Of the scorecard."""

    memory_gib: float
    tflops: float
    fp8_tflops: float | None
    gb_per_s: float
    usd_per_hour: float | None


MODELS = {
    "llama2_7b": Shape(7e9, 32, 32, 128),
    "llama2_13b": Shape(13e9, 40, 40, 128),
    "llama2_70b": Shape(70e9, 80, 64, 128),
    "llama3_8b": Shape(8e9, 32, 32, 128),
    "llama3_70b": Shape(70e9, 80, 64, 128),
    "mistral_7b": Shape(7e9, 32, 32, 128),
    "mixtral_8x7b": Shape(47e9, 32, 32, 128),
}
CARDS = {
    "h100_sxm": Card(80, 1979, 2.49),
    "h100_pcie": Card(80, 1513, 2.06),
    "a100_80": Card(80, 312, 1.29),
    "a100_40": Card(40, 312, 0.90),
    "a10g": Card(24, 125, 0.60),
    "rtx4090": Card(24, 165.3, 0.50),
    "rtx3090": Card(24, 71, 0.25),
    "l4": Card(24, 121, 0.80),
}
SCORED = {
    "l4": Scored(24, 121, 242.5, 300, 0.80),
    "a10g": Scored(24, 125, None, 600, 1.00),
    "a100_80": Scored(80, 312, None, 1935, 2.50),
    "h100_80": Scored(80, 989.5, 1979, 3350, None),
    "h200_141": Scored(141, 989.5, 1979, 4800, 5.00),
}


class Budget(NamedTuple):
    """What it says a card holds. `claimed_extra` has no meaning."""

    fp16: int
    int8: int
    fp8: int
    claimed_extra: float
    usd_per_1k_tokens: float


def budget(card: Card, model: Shape, context: int = BUDGET_CONTEXT) -> Budget:
    """Sessions by format; 1 even where the model does not fit.

    >>> budget(CARDS["a100_80"], MODELS["llama2_7b"])[:3]
    (267, 535, 535)
    """
    usable = model.usable_bytes(card.memory_gib)
    fp16, int8, fp8 = (
        max(1, int(usable // (model.kv_bytes(kv) * context))) for kv in BYTES
    )
    usd = card.usd_per_hour / (TOKENS_PER_S * 3600 / 1000)
    return Budget(fp16, int8, fp8, fp16 * CLAIMED_SAVING, usd)


def downgrade(name: str, model: Shape, required: int) -> str | None:
    """The cheapest cheaper card that it takes to hold so many sessions."""
    price = CARDS[name].usd_per_hour
    for other, card in sorted(CARDS.items(), key=lambda item: item[1].usd_per_hour):
        held = budget(card, model)
        if card.usd_per_hour < price and held.int8 + held.claimed_extra >= required:
            return other
    return None


class Saved(NamedTuple):
    """What it makes of two estimated costs."""

    recompute_s: float
    saved_s: float
    saved_usd: float
    int8_gain: int
    effective_gib: float


def saved(card: Card, model: Shape, cost_s: float, other_s: float) -> Saved:
    """Estimated seconds turned into FLOPs, then into seconds and dollars of a card."""
    per_s = model.pair_flops / TOKEN_S / (card.tflops * 1e12)
    held, gain_s = budget(card, model), (other_s - cost_s) * per_s
    return Saved(
        cost_s * per_s,
        gain_s,
        gain_s / 3600 * card.usd_per_hour,
        held.int8 - held.fp16,
        model.usable_bytes(card.memory_gib) / GIB,
    )


class Score(NamedTuple):
    """A row of its scorecard, for one format of the cache."""

    usable_gib: float
    ridge: float  # FLOPs a byte
    intensity: float
    sessions: int
    tokens_per_s: float
    tokens_per_usd: float | None


def score(
    card: Scored, model: Shape, kv: str = "fp16", context: int = SCORE_CONTEXT
) -> Score:
    """Its bound for one session at a time, without the weights.

    >>> round(score(SCORED["h200_141"], MODELS["llama3_8b"]).tokens_per_s, 4)
    4470.3484
    """
    peak = card.tflops if kv == "fp16" else card.fp8_tflops or card.tflops
    usable, moved = model.usable_bytes(card.memory_gib), context * model.kv_bytes(kv)
    work = context * model.pair_flops
    bound = min(card.gb_per_s * 1e9 / moved, peak * 1e12 / work)
    return Score(
        usable / GIB,
        card.tflops * 1e12 / (card.gb_per_s * 1e9),
        work / moved,
        int(usable // model.kv_bytes(kv)) // context,
        bound,
        None if card.usd_per_hour is None else bound * 3600 / card.usd_per_hour,
    )
