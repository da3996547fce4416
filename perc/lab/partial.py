"""The same documents in blocks: of one that half left, the other half is a hit.

A document of n tokens is floor(n / block) blocks, which count as hits as long as all
before them are there. The last block of a document leaves first, as in vLLM, so that
what stays is of use. Whole-document caches do not see this: in the lab's reverse pass
the document that was cut hits nothing there, and its head here.

LRU only: `perc compare` has all policies in blocks.
"""

from typing import NamedTuple

from perc.errors import InputError, check_whole
from perc.lab.caches import Entry, LRUCache
from perc.lab.scenario import Scenario, reading
from perc.lab.tiers import TwoTierCache


class Read(NamedTuple):
    """Where the tokens of one document were; the others had to be computed."""

    doc: int
    gpu_tokens: int
    cpu_tokens: int


def play_blocks(scenario: Scenario, block: int) -> list[list[Read]]:
    """Reads all passes, in blocks of `block` tokens; one list a pass.

    Raises:
        InputError: for a block of no tokens or larger than a document, or a policy
            other than LRU.

    Example:
        >>> baseline = play_blocks(Scenario(), 16)
        >>> baseline[2][4]  # document 5: its head was still there
        Read(doc=5, gpu_tokens=1488, cpu_tokens=0)
    """
    check_whole("lab", "block", block, 1, scenario.tokens)
    if scenario.policy != "lru":
        raise InputError(
            f"lab: documents in blocks are kept by lru, not {scenario.policy!r}; "
            "perc compare has all policies in blocks."
        )
    many = scenario.tokens // block
    cache = TwoTierCache(scenario.gpu, scenario.cpu)
    found = []
    for order in scenario.passes:
        reads = []
        for doc in reading(scenario, order):
            chain = [(doc, i) for i in range(many)]
            reads.append(_read(cache, chain, block, scenario.exclusive))
        found.append(reads)
    return found


def as_dict(reads: list[Read], order: str, scenario: Scenario) -> dict:
    """What `perc lab --block` prints of a pass: tokens by place, and each document."""
    gpu, cpu = (sum(r.gpu_tokens for r in reads), sum(r.cpu_tokens for r in reads))
    return {
        "order": order,
        "gpu_tokens": gpu,
        "cpu_tokens": cpu,
        "missing_tokens": len(reads) * scenario.tokens - gpu - cpu,
        "documents": [read._asdict() for read in reads],
    }


def _read(cache: TwoTierCache, chain: list, block: int, exclusive: bool) -> Read:
    """Counts the leading run, then stores the chain."""
    gpu = _leading(chain, cache.gpu)
    cpu = _leading(chain[gpu:], cache.cpu)
    if exclusive:
        _move_up(cache, chain, block)
    else:
        _hold(cache.cpu, chain[gpu:], block)
        _hold(cache.gpu, chain, block)
    return Read(chain[0][0], gpu * block, cpu * block)


def _move_up(cache: TwoTierCache, chain: list, block: int) -> None:
    for key in chain:
        if key in cache.cpu:
            cache.cpu.remove(key)
    for gone, size in _hold(cache.gpu, chain, block):
        cache.cpu.insert(gone, size)
    _hold(cache.cpu, [key for key in chain if key not in cache.gpu], block)


def _hold(tier: LRUCache, chain: list, block: int) -> list[Entry]:
    """Stores as much of a chain as fits, its head the most recent; what left for it.

    What is there is touched first, so that no block of a chain makes another leave.
    """
    kept = chain[: tier.capacity // block][::-1]
    for key in kept:
        if key in tier:
            tier.touch(key)
    gone = [left for key in kept if key not in tier for left in tier.insert(key, block)]
    for key in kept:
        tier.touch(key)
    return gone


def _leading(chain: list, tier: LRUCache) -> int:
    """Blocks until the first that is not there."""
    return next((i for i, key in enumerate(chain) if key not in tier), len(chain))
