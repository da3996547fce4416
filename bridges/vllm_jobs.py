"""Jobs for `vllm_trial`: requests of a trace or of prompts, and arms to serve them."""

import base64
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perc.bridges import vllm_trial
from perc.errors import InputError
from perc.profile_rows import Dataset
from perc.types import Trace

STOCK = "stock"  # the arm that leaves vLLM as it is
FRESH = 1 << 40  # ids of what no block names: tails of prompts, new every time


def requests_of_trace(
    trace: Trace, *, limit: int, answer_tokens: int, speed: float
) -> list[dict[str, Any]]:
    """The first requests of a trace; equal blocks become equal tokens.

    Args:
        trace: R requests.
        limit: at most so many.
        answer_tokens: at most so many are generated, and at least one.
        speed: times divide by it.

    Raises:
        InputError: if the trace has no block to make a prompt of.
    """
    if not trace.n_accesses:
        raise InputError(f"{trace.source} has no block ids: no prompt can be made.")
    found = []
    for r in range(min(limit, trace.n_requests)):
        part = slice(int(trace.start[r]), int(trace.stop[r]))
        blocks = trace.block[part].tolist()
        sizes = trace.tokens[part].tolist()
        rest = int(trace.input_tokens[r]) - sum(sizes)
        chain = [*zip(blocks, sizes, strict=True)]
        if rest > 0 or not chain:
            chain.append((FRESH + r, max(rest, 1)))
        found.append(
            {
                "blocks": chain,
                "output_tokens": int(np.clip(trace.output_tokens[r], 1, answer_tokens)),
                "arrival_s": float(trace.arrival_s[r] - trace.arrival_s[0]) / speed,
            }
        )
    return found


def requests_of_prompts(
    texts: Sequence[str], arrivals: Sequence[float], *, answer_tokens: int
) -> list[dict[str, Any]]:
    """A request a prompt."""
    return [
        {"text": text, "output_tokens": answer_tokens, "arrival_s": at_s}
        for text, at_s in zip(texts, arrivals, strict=True)
    ]


def prompts_of(dataset: Dataset) -> list[str]:
    """A prompt for each question of each conversation: all that was said until then."""
    found = []
    for conversation in dataset.conversations:
        said: list[str] = []
        for message in conversation.messages:
            said.append(message.text)
            if not message.answer:
                found.append("\n".join(said))
    return found


def arms_of(models: Sequence[str], policies: Sequence[str]) -> list[dict[str, Any]]:
    """Every model under every policy; `stock` leaves vLLM as it is.

    Raises:
        InputError: if one stands twice.
    """
    arms = [
        {
            "name": policy if len(models) == 1 else f"{model}, {policy}",
            "model": model,
            "policy": None if policy == STOCK else policy,
        }
        for model in models
        for policy in policies
    ]
    names = [arm["name"] for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice} stands twice.")
    return arms


def render(job: dict[str, Any], path: Path) -> str:
    """One Python file that runs a job wherever vLLM is, and writes what it found.

    Args:
        job: of `vllm_trial`.
        path: of the file, for what it says of itself.
    """
    packed = base64.b85encode(zlib.compress(json.dumps(job).encode())).decode()
    source = Path(vllm_trial.__file__).read_text()
    head, main = source.split("def main(words):")
    assert "if __name__" in main
    return f'''{head.rstrip()}


JOB = (
{_lines(packed)})


def main(words):
    """python {path.name} [OUT.json]: runs the job that is in this file."""
    if len(words) == 2:  # one engine, in a process of its own
        with open(words[0]) as file:
            result = serve(job := json.load(file), job["arms"][0])
    else:
        job = json.loads(zlib.decompress(base64.b85decode(JOB)))
        result = {{"job": job, "results": run_all(job, os.path.abspath(__file__))}}
    with open(words[-1] if words else "{path.stem}.json", "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    import base64
    import zlib

    main(sys.argv[1:])
'''


def _lines(text: str, width: int = 72) -> str:
    parts = (text[i : i + width] for i in range(0, len(text), width))
    return "".join(f"    {part!r}\n" for part in parts)
