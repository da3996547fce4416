"""What a reading takes on a model and an accelerator: prefill of the rest, and reload.

    TTFT = prefill(tokens, those that are there) + latency + bytes from the host / link

One document at a time, nothing overlapped, answers left out; at least one token is
computed. A roofline (`perc.roofline`), not a measurement.
"""

from dataclasses import dataclass

from perc.hardware import Accelerator, Link, link
from perc.kv_memory import kv_token_bytes
from perc.lab.partial import Read
from perc.lab.scenario import Pass, Scenario
from perc.models import ModelShape
from perc.roofline import Roofline, roofline


@dataclass(frozen=True)
class Clock:
    """Seconds of a document."""

    cost: Roofline
    way: Link  # from the host
    token_bytes: float

    def ttft_s(self, tokens: int, gpu_tokens: int, cpu_tokens: int) -> float:
        """Until the first token, of a document of which so much was there."""
        prefill_s = self.cost.prefill_s(tokens, gpu_tokens + cpu_tokens)
        return float(prefill_s + self.way.time_s(cpu_tokens * self.token_bytes))


def clock(model: ModelShape, card: Accelerator, host: str | None = None) -> Clock:
    """Of a model on a card, over its own link to the host or another.

    Example:
        >>> from perc.hardware import accelerator
        >>> from perc.model_shapes import model
        >>> lab = clock(model("qwen2.5-1.5b"), accelerator("a100"))
        >>> times = [(0, 0), (0, 5011), (5011, 0)]  # a miss, a hit in the host, a hit
        >>> [f"{1000 * lab.ttft_s(5011, *there):.1f} ms" for there in times]
        ['113.0 ms', '7.8 ms', '2.0 ms']
    """
    way = link(host or card.host)
    return Clock(roofline(model, card), way, kv_token_bytes(model))


def whole_reads(passed: Pass, scenario: Scenario) -> list[Read]:
    """A pass of whole documents, as reads."""
    n, there = scenario.tokens, {"gpu": (1, 0), "cpu": (0, 1), "miss": (0, 0)}
    return [
        Read(doc, *(n * share for share in there[where]))
        for doc, where in zip(passed.docs, passed.where, strict=True)
    ]


def seconds_of(reads: list[Read], scenario: Scenario, at: Clock) -> list[float]:
    """TTFT of each document, in the order of its pass."""
    return [at.ttft_s(scenario.tokens, r.gpu_tokens, r.cpu_tokens) for r in reads]
