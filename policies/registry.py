"""Every policy by name. Being listed here is what the conformity suite tests.

>>> import perc
>>> perc.policies.registry["perc_decay"](tau_s=60.0).name
'perc_decay'
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from perc.errors import InputError
from perc.policies import (
    arc,
    belady,
    fifo,
    filo,
    gds,
    gdsf,
    hazard,
    landlord,
    lfu,
    lfu_in_cache,
    lru,
    lru_k,
    marconi,
    mru,
    perc,
    perc_decay,
    perc_published,
    priority,
    random,
    rlt,
    s3fifo,
    shortest,
    sieve,
    slru,
    t_lru,
    tinylfu,
    ttl,
    w_tinylfu,
    workload_aware,
)


class Registry(Mapping[str, Callable[..., Any]]):
    """Names to constructors; an unknown name is answered with the known ones."""

    def __init__(self, constructors: dict[str, Callable[..., Any]]):
        self._constructors = constructors

    def __getitem__(self, name: str) -> Callable[..., Any]:
        try:
            return self._constructors[name]
        except KeyError:
            known = ", ".join(self._constructors)
            raise InputError(
                f"no policy is called {name!r}. There are: {known}."
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._constructors

    def __iter__(self) -> Iterator[str]:
        return iter(self._constructors)

    def __len__(self) -> int:
        return len(self._constructors)


registry = Registry(
    {
        "lru": lru.lru,
        "fifo": fifo.fifo,
        "lfu": lfu.lfu,
        "lfu_in_cache": lfu_in_cache.lfu_in_cache,
        "lru_k": lru_k.lru_k,
        "slru": slru.slru,
        "slru_threshold": slru.slru_threshold,
        "gds": gds.gds,
        "gdsf": gdsf.gdsf,
        "landlord": landlord.landlord,
        "arc": arc.arc,
        "arc_vllm": arc.arc_vllm,
        "s3fifo": s3fifo.s3fifo,
        "sieve": sieve.sieve,
        "tinylfu": tinylfu.tinylfu,
        "w_tinylfu": w_tinylfu.w_tinylfu,
        "t_lru": t_lru.t_lru,
        "ttl": ttl.ttl,
        "workload_aware": workload_aware.workload_aware,
        "hazard": hazard.hazard,
        "marconi": marconi.marconi,
        "priority": priority.priority,
        "random": random.random,
        "rlt": rlt.rlt,
        "mru": mru.mru,
        "filo": filo.filo,
        "shortest": shortest.shortest,
        "largest": shortest.largest,
        "perc": perc.perc,
        "perc_decay": perc_decay.perc_decay,
        "perc_published": perc_published.perc_published,
        "belady": belady.belady,
        "belady_bypass": belady.belady_bypass,
    }
)


class _Module(ModuleType):
    """Lets the module itself be read as the mapping: `perc.policies.registry[name]`."""

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return registry[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry)

    def __len__(self) -> int:
        return len(registry)

    def __contains__(self, name: object) -> bool:
        return name in registry

    keys = property(lambda self: registry.keys)
    values = property(lambda self: registry.values)
    items = property(lambda self: registry.items)


sys.modules[__name__].__class__ = _Module
