"""The causes of misses as rows: for a chart, and as parquet."""

from typing import Any


def flat_misses(misses: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each policy, capacity, group and cause that occurs; hits lead.

    Args:
        misses: as `Attribution.as_dict` gives them.
    """
    return [
        {
            "capacity_blocks": row["capacity_blocks"],
            "policy": row["policy"],
            "group": row["group"],
            "cause": cause,
            "tokens": tokens,
            "share": tokens / max(row["prompt_tokens"], 1),
        }
        for row in misses["rows"]
        for cause, tokens in [
            ("hit", row["hit_tokens"]),
            *((cause, found["tokens"]) for cause, found in row["misses"].items()),
        ]
        if tokens
    ]
