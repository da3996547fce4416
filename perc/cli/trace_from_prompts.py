"""`perc trace-from-prompts`: text prompts become a trace."""

import shlex
from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from perc.cli.loading import save_trace


def trace_from_prompts(
    file: Annotated[Positional[str], arg(metavar="PROMPTS")],
    *,
    tokenizer: Annotated[Path, arg(metavar="TOKENIZER.JSON")],
    out: Annotated[Path, arg(metavar="FILE.parquet")],
    block_tokens: int = 16,
    prompt: str = "prompt",
    session: str = "session",
    arrival: str = "arrival",
    answer: str = "answer",
    templated: FlagCreatePairsOff[bool] = False,
    redact: FlagCreatePairsOff[bool] = False,
) -> None:
    """Turn a table of prompts into a trace: tokenise them, cut them into blocks.

    Args:
        file: JSONL, CSV or parquet, a row a request.
        tokenizer: of the model, in the format of Hugging Face's tokenizers.
        out: file to write, a name that ends in .parquet; replaced if it exists.
        block_tokens: tokens of a block, as the engine has them.
        prompt: column of the whole text that the server gets.
        session: column of the conversation's name; absent: inferred from the prompts.
        arrival: column of seconds; absent: one request a second.
        answer: column of the text that was written; absent: no token of output.
        templated: the prompts have the model's special tokens already.
        redact: leave out the name of the file, too; no prompt is in a trace.

    Raises:
        InputError: if a file, a column or a value is not as it must be.
    """
    from perc.prefix_text import Names
    from perc.prefix_text import trace_from_prompts as read
    from perc.traces import check_target

    check_target(out)
    trace = read(
        file,
        tokenizer,
        block_tokens=block_tokens,
        names=Names(prompt, session, arrival, answer),
        special_tokens=not templated,
    )
    save_trace(trace, out, redact=redact)
    shared = (trace.prev >= 0).sum() / max(trace.n_accesses, 1)
    print(
        f"{out}: {trace.n_requests:,} requests of {int(trace.input_tokens.sum()):,} "
        f"tokens, {trace.n_accesses:,} accesses of {trace.n_blocks:,} distinct blocks "
        f"of {trace.block_tokens:,} tokens; {shared:.1%} repeat an earlier one\n"
        f"next: perc compare {shlex.quote(str(out))}"
    )
