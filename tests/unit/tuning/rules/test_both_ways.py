"""Every rule fires where it should and is silent where it should be."""

import pytest

from service.tuning.rules import all_rules, gate
from tests.unit.tuning.rules.both_ways import BOTH_WAYS, Situation
from tests.unit.tuning.rules.builders import findings, situation

_OF_THE_LOOK_UP = {"CAP012", "HW001", "HW002", "HW003"}
_OF_THE_GATE = {rule.id for rule in gate.RULES}
_CASES = pytest.mark.parametrize(
    ("rule", "fires", "silent"),
    BOTH_WAYS,
    ids=[f"{case[0]}-{number}" for number, case in enumerate(BOTH_WAYS)],
)


@_CASES
def test_rule_fires_where_it_should(rule: str, fires: Situation, silent: Situation) -> None:
    """The rule says something, names its cause, what to do, and where that is known from."""
    found = findings(situation(**fires), rule)

    assert found
    assert all(finding.message and finding.suggestion and finding.source for finding in found)


@_CASES
def test_rule_is_silent_where_it_should_be(rule: str, fires: Situation, silent: Situation) -> None:
    """In a near situation that is fine, the rule says nothing."""
    found = findings(situation(**silent), rule)

    assert found == []


def test_every_rule_is_tried_both_ways() -> None:
    """No rule is without a case of its own; memory, look-up and gate have theirs elsewhere."""
    tried = {rule for rule, _, _ in BOTH_WAYS}

    untried = {rule.id for rule in all_rules() if not rule.id.startswith("CAP")} - tried

    assert untried - _OF_THE_LOOK_UP - _OF_THE_GATE == set()
