"""The tuning rules."""

from typing import Annotated

from litestar import Response, get
from litestar.openapi.spec import Example
from litestar.params import PathParameter

from api_schemas.catalogue import RuleDescription, RuleList
from service.api.bodies import encode
from service.api.describe import JSON, Answer, describe
from service.api.problems import not_found
from service.tuning.rules.base import Rule
from service.tuning.rules.registry import all_rules, find_rule

RuleId = Annotated[
    str, PathParameter(max_length=32, description="Rule id.", examples=[Example(value="PAR001")])
]


@get(
    "/rules",
    operation_id="listRules",
    summary="List the tuning rules",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(Answer(200, "Every rule, by id.", kind=RuleList)),
)
def list_rules() -> Response[bytes]:
    """Return what every rule looks for, why, and where that is written."""
    items = [_describe(rule) for rule in all_rules()]
    return Response(encode(RuleList(items=items)), media_type=JSON)


@get(
    "/rules/{rule_id:str}",
    operation_id="getRule",
    summary="Show one tuning rule",
    tags=["catalogues"],
    sync_to_thread=False,
    opt=describe(Answer(200, "The rule.", kind=RuleDescription), problems=("not-found",)),
)
def get_rule(rule_id: RuleId) -> Response[bytes]:
    """Return what a rule looks for, why, and where that is written."""
    rule = find_rule(rule_id)
    if rule is None:
        raise not_found("rule", rule_id, hint="GET /rules lists them.")
    return Response(encode(_describe(rule)), media_type=JSON)


def _describe(rule: Rule) -> RuleDescription:
    return RuleDescription(
        id=rule.id,
        title=rule.title,
        help=rule.help,
        settings=list(rule.settings),
        severity=rule.severity,
        source=list(rule.source),
        since=rule.since,
        until=rule.until,
    )
