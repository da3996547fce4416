"""`perc convert`: any trace into perc's own file, which loads fast and exactly."""

from typing import Annotated

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from perc.cli.loading import AS_IT_COMES, Loading, open_trace, save_trace


def convert(
    source: Annotated[Positional[str], arg(metavar="TRACE")],
    target: Annotated[Positional[str], arg(metavar="FILE.parquet")],
    *,
    redact: FlagCreatePairsOff[bool] = False,
    loading: OmitArgPrefixes[Loading] = AS_IT_COMES,
) -> None:
    """Convert a trace to parquet, perc's own format, which loads fast and exactly.

    Args:
        source: file of the trace; for RAGPulse its folder or archive.
        target: file to write, a name that ends in .parquet; replaced if it exists.
        redact: leave out what words the file has, names of kinds and its own, before
            it is given to others. Prompts and names of sessions are never in it.
        loading: how to read the trace.

    Raises:
        InputError: if the source, the target or a flag is not as it must be.
    """
    from perc.traces import check_target

    check_target(target)
    trace = open_trace(source, loading)
    save_trace(trace, target, redact=redact)
    print(
        f"{target}: {trace.n_requests:,} requests, {trace.n_accesses:,} accesses of "
        f"{trace.n_blocks:,} distinct blocks of {trace.block_tokens:,} tokens"
    )
