"""Rules: one small pure function per setting, used by advice and checks alike."""

from service.tuning.rules.registry import all_rules, check_rules, find_rule

__all__ = ["all_rules", "check_rules", "find_rule"]
