"""The audit trail: what requests changed, or were not allowed to."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from api_schemas.access import AuditEvent
from service.api.access import CALLER, OPERATION, TARGET, caller_in
from service.identifiers import timestamp
from service.log import get_logger
from service.store.client import StoreUnavailable

if TYPE_CHECKING:
    from service.api.context import Context

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_PURE = frozenset({"createEstimate", "createCheck", "callTool"})
"""POSTs that change nothing."""
_FORBIDDEN = 403
_FAILED = 400

_log = get_logger(__name__)


async def record_request(
    context: "Context", request: Mapping[str, Any], *, status: int, location: str | None
) -> None:
    """Add a request to its tenant's trail, when it changed something or was forbidden to."""
    state = request["state"]
    operation = state.get(OPERATION)
    if operation is None or CALLER not in state or not _is_audited(request, operation, status):
        return
    caller = caller_in(state)
    event = AuditEvent(
        id="",
        at=timestamp(context.now()),
        actor=caller.actor,
        action=operation,
        target=location or state.get(TARGET) or request["path"],
        status=status,
        request_id=state["request_id"],
    )
    try:
        await asyncio.to_thread(context.audit.append, event, tenant=caller.tenant)
    except StoreUnavailable:
        _log.warning("audit_event_not_kept", actor=event.actor, action=event.action)


def _is_audited(request: Mapping[str, Any], operation: str, status: int) -> bool:
    if status == _FORBIDDEN:
        return True
    return request["method"] not in _READING and operation not in _PURE and status < _FAILED
