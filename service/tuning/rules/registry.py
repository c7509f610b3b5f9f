"""All rules in one place, in the order of their ids."""

from functools import cache, lru_cache

from api_schemas.explanation import Finding
from service.tuning.engine.versions import EngineVersion
from service.tuning.rules import (
    attention,
    capacity,
    dtype,
    environment,
    gate,
    graphs,
    hardware,
    headroom,
    hybrids,
    kv_cache,
    looked_up,
    lora,
    memory,
    multimodal,
    offload,
    parallelism,
    prefix_caching,
    quantization,
    request_length,
    scheduler,
    speculative,
    step_budget,
    tensor_parallel,
    versions,
    weight_kernels,
)
from service.tuning.rules.base import Rule, RuleContext, run_rules_that_hold, says_nothing

_GROUPS = (
    attention,
    capacity,
    dtype,
    environment,
    gate,
    graphs,
    hardware,
    headroom,
    hybrids,
    kv_cache,
    looked_up,
    lora,
    memory,
    multimodal,
    offload,
    parallelism,
    prefix_caching,
    quantization,
    request_length,
    scheduler,
    speculative,
    step_budget,
    tensor_parallel,
    versions,
    weight_kernels,
)

_KEPT = 128
"""Releases whose rules are remembered."""


@cache
def all_rules() -> tuple[Rule, ...]:
    """Return every rule, by id."""
    rules = (rule for group in _GROUPS for rule in group.RULES)
    return tuple(sorted(rules, key=lambda rule: rule.id))


def find_rule(rule_id: str) -> Rule | None:
    """Return the rule with this id, None when there is none."""
    return next((rule for rule in all_rules() if rule.id == rule_id), None)


@lru_cache(maxsize=_KEPT)
def rules_of(version: EngineVersion) -> tuple[Rule, ...]:
    """Return the rules that hold for a release, by id."""
    return tuple(rule for rule in all_rules() if rule.holds_for(version))


@lru_cache(maxsize=_KEPT)
def _checked_rules(version: EngineVersion) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules_of(version) if rule.check is not says_nothing)


def check_rules(context: RuleContext) -> list[Finding]:
    """Return what all rules find in a configuration: errors first, then by rule id.

    It answers for any values at all; what makes no sense is itself a finding.
    """
    return run_rules_that_hold(_checked_rules(context.version), context)
