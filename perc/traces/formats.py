"""The trace formats that perc reads: their names, and what a reader may be told."""

from collections.abc import Callable
from dataclasses import dataclass

FORMATS = {
    "mooncake": "Mooncake JSONL: time in ms, chained ids of 512-token blocks",
    "blocks": "JSONL with session_id: time in s, chained ids of full blocks",
    "sessions": "kv-cache-tester sessions, one a line: content ids, no absolute times",
    "bailian": "Alibaba Bailian JSONL: chat_id, parent_chat_id, 16-token blocks",
    "ragpulse": "RAGPulse folder or tar archive: segment ids and their token lengths",
    "azure": "Azure LLM inference CSV: arrivals and lengths, no blocks",
    "parquet": "perc's own file, as written by `perc convert`",
}


@dataclass(frozen=True)
class Options:
    """What a reader may be told beside the path; each takes what concerns it."""

    block_tokens: int | None = None  # tokens of a block, None = as the format has it
    sessions_per_hour: float | None = None  # density of invented session starts
    start_seed: int = 0  # of the invented session starts
    progress: Callable[[float], None] | None = None  # gets the share of the file read


def known_formats() -> str:
    """The formats as a text of one line each, for help and messages."""
    return "\n".join(f"  {name:9} {about}" for name, about in FORMATS.items())
