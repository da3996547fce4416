"""Retention rules: pins, times to live, priorities and quotas above a base policy."""

from perc.retention.parse import load_rules, parse_rules
from perc.retention.replay import Ruled, replay_rules
from perc.retention.report import RuleComparison, compare_rules
from perc.retention.rules import Rule, Rules, Selector, Tenant

__all__ = [
    "Rule",
    "RuleComparison",
    "Ruled",
    "Rules",
    "Selector",
    "Tenant",
    "compare_rules",
    "load_rules",
    "parse_rules",
    "replay_rules",
]
