"""perc: decides what an LLM server keeps in its KV cache.

>>> import perc
>>> trace = perc.make("chat", requests=300)
>>> policy = perc.policies.registry["perc_decay"](tau_s=120.0)
>>> hits = perc.replay(trace, perc.ranks(trace, perc.scores(policy, trace)), [500])
>>> hits.blocks.shape
(1, 300)
"""

from perc import policies
from perc.attribution import Attribution, attribute
from perc.compare import Comparison, compare
from perc.curves import lru_curve
from perc.online import replay_online
from perc.plan import Plan, plan
from perc.policies import registry as _registry  # noqa: F401
from perc.ranks import ranks, scores
from perc.replay import replay
from perc.retention import (
    RuleComparison,
    Rules,
    compare_rules,
    load_rules,
    parse_rules,
    replay_rules,
)
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
    Rescored,
    Scored,
    Trace,
)
from perc.workloads import make

__all__ = [
    "Attribution",
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
    "Rescored",
    "RuleComparison",
    "Rules",
    "Scored",
    "Trace",
    "Tuning",
    "attribute",
    "compare",
    "compare_rules",
    "empty_cache",
    "load",
    "load_rules",
    "lru_curve",
    "make",
    "parse_rules",
    "plan",
    "policies",
    "ranks",
    "replay",
    "replay_online",
    "replay_rules",
    "save",
    "scores",
    "step",
    "sweep",
    "tune",
]
