"""Titles and pages of rules, for formats that link to them."""

from service.tuning.rules.registry import find_rule

RULES_PAGE = "https://github.com/setpoint/setpoint/blob/main/docs/reference.md#rules"
"""Where the rules are described when no service is named."""


def rule_title(rule_id: str) -> str:
    """Return what the rule asks for, in a few words."""
    rule = find_rule(rule_id)
    return rule_id if rule is None else rule.title


def rule_help(rule_id: str) -> str:
    """Return why the rule matters and what to do."""
    rule = find_rule(rule_id)
    return "" if rule is None else rule.help
