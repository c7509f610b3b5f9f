"""The audit trail: who did what when, bounded per tenant."""

from typing import Any

import msgspec
import redis

from api_schemas.access import AuditEvent
from service.store import keys
from service.store.client import binary, reaching_the_store, text
from service.store.decoding import decode_record

MOST_EVENTS = 10_000
"""The oldest events of a tenant go when there are more, about."""


class AuditTrail:
    """Events in Redis or Valkey."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def append(self, event: AuditEvent, *, tenant: str) -> None:
        """Add an event; its id is given by the store."""
        fields: dict[Any, Any] = {"event": msgspec.json.encode(event)}
        with reaching_the_store():
            self._client.xadd(
                keys.audit_trail(tenant), fields, maxlen=MOST_EVENTS, approximate=True
            )

    def newest(self, *, tenant: str, limit: int, before: str | None = None) -> list[AuditEvent]:
        """Return up to `limit` events, the newest first, older than the id `before`."""
        if before is not None and not before.strip("0-"):
            return []  # nothing is older than the smallest id, and the store refuses the question
        latest = f"({before}" if before else "+"
        with reaching_the_store():
            found: Any = self._client.xrevrange(
                keys.audit_trail(tenant), max=latest, min="-", count=limit
            )
        return [_event(text(identifier), fields) for identifier, fields in found]


def _event(identifier: str, fields: dict[Any, Any]) -> AuditEvent:
    named = {text(name): value for name, value in fields.items()}
    event = decode_record(binary(named["event"]), AuditEvent)
    return msgspec.structs.replace(event, id=identifier)
