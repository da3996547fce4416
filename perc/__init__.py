"""perc: decides what an LLM server keeps in its KV cache.

>>> import perc
>>> trace = perc.make("chat", requests=300)
>>> policy = perc.policies.registry["perc"](tau_s=120.0)
>>> hits = perc.replay(trace, perc.ranks(trace, perc.scores(policy, trace)), [500])
>>> hits.blocks.shape
(1, 300)
"""

from perc import policies
from perc.compare import Comparison, compare
from perc.curves import lru_curve
from perc.online import replay_online
from perc.plan import Plan, plan
from perc.policies import registry as _registry  # noqa: F401
from perc.ranks import ranks, scores
from perc.replay import replay
from perc.step import empty_cache, step
from perc.sweep import sweep
from perc.traces import load, save
from perc.tune import Tuning, tune
from perc.types import (
    CacheState,
    Features,
    Hits,
    Listed,
    OnlinePolicy,
    Outcome,
    Policy,
    Request,
    Scored,
    Trace,
)
from perc.workloads import make

__all__ = [
    "CacheState",
    "Comparison",
    "Features",
    "Hits",
    "Listed",
    "OnlinePolicy",
    "Outcome",
    "Plan",
    "Policy",
    "Request",
    "Scored",
    "Trace",
    "Tuning",
    "compare",
    "empty_cache",
    "load",
    "lru_curve",
    "make",
    "plan",
    "policies",
    "ranks",
    "replay",
    "replay_online",
    "save",
    "scores",
    "step",
    "sweep",
    "tune",
]
