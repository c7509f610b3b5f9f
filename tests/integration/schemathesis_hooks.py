"""What schemathesis runs beside its own checks: whose data an answer holds, and what was called.

Schemathesis loads it in a process of its own, in whose folder lies what to look for.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import schemathesis
from schemathesis import Case, CheckContext, HookContext, Response
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import UseAfterFree

_ENDING = frozenset({"revokeApiKey", "rotateApiKey"})
_KEPT = frozenset(
    {"getApiKey", "getValidation", "followValidation", "getStudy", "followStudy", "getModel"}
)
_known: dict[str, Any] = json.loads(Path("known.json").read_text())
_calls = Path(_known["calls"]).open("a", buffering=1)  # noqa: SIM115  # open as long as the run


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Spare the own key, without which nothing more could be tried."""
    del context, kwargs
    # Whoever looks at the parameters of a case takes it for a changed one: only where it must be.
    if _name_of(case) not in _ENDING:
        return
    if case.path_parameters and case.path_parameters.get("key_id") == _known["own_key_id"]:
        case.path_parameters["key_id"] = _known["spare_key_id"]


@schemathesis.hook
def after_call(context: HookContext, case: Case[Any], response: Response) -> None:
    """Write down each call."""
    del context
    is_own = case.method.upper() == case.operation.method.upper()
    name = _name_of(case) if is_own else "undescribed method"
    path = urlsplit(str(response.request.url)).path
    is_foreign = any(identifier in path for identifier in _known["foreign_ids"])
    _calls.write(json.dumps([name, response.status_code, is_foreign]) + "\n")


@schemathesis.hook
def filter_failure(
    context: HookContext, failure: Failure, case: Case[Any], response: Response
) -> bool:
    """Know what DELETE leaves, as the document says.

    The record of a key or a run that it ends stays to be read; under the id of a registered model
    there may be a bundled one.
    """
    del context, response
    return not (isinstance(failure, UseAfterFree) and _name_of(case) in _KEPT)


@schemathesis.check
def no_data_of_another_tenant(ctx: CheckContext, response: Response, case: Case[Any]) -> None:
    """Hold answers to the caller's tenant: what only another one knows is in none of them.

    A refusal repeats the id that was asked for; a success that names it would tell of the record.
    """
    del ctx, case
    text = response.content.decode(errors="replace")
    told = [secret for secret in _known["secrets"] if secret in text]
    if response.status_code < 300:
        told += [name for name in _known["foreign_ids"] if name in text]
    assert not told, f"tells {told} of another tenant"


def _name_of(case: Case[Any]) -> str:
    return str(case.operation.definition.raw["operationId"])
