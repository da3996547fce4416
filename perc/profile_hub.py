"""Data sets of the Hugging Face hub: the first rows, by full or by short name.

References:
    CachePilot, its profiler, for the short names. "oasst1": Köpf et al. 2023 (arXiv
    2304.07327). "arena": Zheng et al. 2023, "LMSYS-Chat-1M" (arXiv 2309.11998).
"""

from itertools import islice
from typing import NamedTuple

from perc.errors import InputError
from perc.profile_rows import Dataset, conversations


class HubName(NamedTuple):
    """A data set of the hub."""

    name: str
    gated: bool = False  # its owner wants to be asked first


DATA_SETS = {
    "oasst1": HubName("OpenAssistant/oasst1"),
    "alpaca": HubName("yahma/alpaca-cleaned"),
    "sharegpt": HubName("Aeala/ShareGPT_Vicuna_unfiltered"),
    "arena": HubName("lmsys/lmsys-chat-1m", gated=True),
}


def read_hub(
    name: str, *, split: str = "train", config: str | None = None, limit: int = 1000
) -> Dataset:
    """Streams the first rows of a Hugging Face data set.

    Args:
        name: of the hub, OWNER/NAME, or one of `DATA_SETS`.
        split: of the data set.
        config: of the data set; None takes its only one.
        limit: rows to take.

    Raises:
        InputError: if the package `datasets` is missing, or the data set cannot be
            read: no network, no such name, or its owner has not agreed.
    """
    of = DATA_SETS.get(name, HubName(name))
    source = f"hf:{of.name}"
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError(
            f"{source}: data sets of the hub need a package: "
            "pip install 'perc-kv[datasets]'"
        ) from None
    try:
        stream = load_dataset(of.name, config, split=split, streaming=True)
        rows = list(islice(stream, limit))
    except Exception as error:  # the package raises many kinds
        why = str(error).strip().splitlines() or [type(error).__name__]
        ask = (
            "its owner wants to be asked: agree on its page, then hf auth login; "
            if of.gated
            else ""
        )
        raise InputError(
            f"{source}: cannot be read ({why[0].rstrip('.')}); {ask}check the network, "
            "name, split and configuration, or download it and give the file."
        ) from None
    return conversations(source, rows, limit=limit)._replace(total=None)
