"""Events of a run in a stream of Redis or Valkey; the ids of its entries resume a reader."""

from typing import Any

import msgspec
import redis

from service.store.client import binary, reaching_the_store, text

MOST_EVENTS = 2000
"""The oldest events of a run go when there are more, about."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened; the id resumes the stream after it."""

    id: str
    name: str
    data: bytes


def events_after(client: redis.Redis, key: str, *, after: str, limit: int = 100) -> list[Event]:
    """Return what happened after this event id ("0" for all), oldest first.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    with reaching_the_store():
        entries: Any = client.xrange(key, min=f"({after}", max="+", count=limit)
    return [_event(entry_id, fields) for entry_id, fields in entries]


def _event(entry_id: Any, fields: dict[Any, Any]) -> Event:  # noqa: ANN401  # the client's own types
    named = {text(key): value for key, value in fields.items()}
    return Event(id=text(entry_id), name=text(named["event"]), data=binary(named["data"]))
