"""Validations in Redis: the record in fields, load points and events as they come.

A state moves only through one Lua script, which knows the allowed moves; a finished record never
changes again, and a process whose run was given to another can no longer write.
"""

import enum
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import redis
from msgspec import UNSET

from api_schemas.event import ValidationChange
from api_schemas.validation import TERMINAL, Failure, LoadPoint, Validation, ValidationStatus
from service.log import get_logger
from service.store import claims, keys
from service.store.client import binary, is_visible, reaching_the_store, text
from service.store.decoding import UnreadableRecord, decode_record
from service.store.events import MOST_EVENTS, Event, events_after
from service.store.waiting import WaitingRun

_ENDS: tuple[ValidationStatus, ...] = ("succeeded", "failed", "cancelled", "timed_out")
_AGAIN: tuple[ValidationStatus, ...] = ("queued",)
ALLOWED_MOVES: dict[ValidationStatus, tuple[ValidationStatus, ...]] = {
    "queued": ("leasing", "failed", "cancelled", "timed_out"),
    "leasing": ("starting", *_AGAIN, *_ENDS[1:]),
    "starting": ("warming_up", *_AGAIN, *_ENDS),
    "warming_up": ("measuring", "starting", *_AGAIN, *_ENDS),
    "measuring": ("warming_up", "starting", *_AGAIN, *_ENDS),
    "succeeded": (),
    "failed": (),
    "cancelled": (),
    "timed_out": (),
}
"""A run goes back to `queued` only when its process was lost."""

_log = get_logger(__name__)
_POINTS = "load_points"
_TOLD = ("stage", "progress", "verdict")
_CHANGE = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then
  return 'missing'
end
status = cjson.decode(status)
local moves = cjson.decode(ARGV[1])
if #moves[status] == 0 then
  return 'finished'
end
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[2] then
  return 'stale'
end
local to = ARGV[3]
if to ~= '' then
  local allowed = false
  for _, move in ipairs(moves[status]) do
    allowed = allowed or move == to
  end
  if not allowed and to ~= status then
    return 'refused'
  end
  redis.call('HSET', KEYS[1], 'status', cjson.encode(to), 'attempt', ARGV[9])
  if to == 'queued' then
    redis.call('DEL', KEYS[2])
    redis.call('ZADD', KEYS[6], 0, ARGV[10])
  else
    redis.call('ZREM', KEYS[6], ARGV[10])
  end
  if to ~= 'leasing' then
    redis.call('ZREM', KEYS[7], ARGV[10])
  end
end
if ARGV[4] ~= '' then
  redis.call('RPUSH', KEYS[2], ARGV[4])
end
for index = 11, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1])
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[7], '*', 'event', ARGV[5], 'data', ARGV[6])
if to ~= '' and #moves[to] == 0 then
  redis.call('SREM', KEYS[4], ARGV[8])
  redis.call('DEL', KEYS[5])
  local plan = redis.call('HGET', KEYS[1], 'plan')
  local hook = plan and cjson.decode(plan)['webhook']
  if hook and hook ~= cjson.null then
    redis.call('ZADD', KEYS[8], 0, ARGV[8])
  end
end
return 'done'
"""
_REQUEST_CANCEL = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then
  return 0
end
redis.call('HSET', KEYS[1], 'cancel', '1')
return 1
"""


class Change(enum.Enum):
    """What became of a write."""

    DONE = "done"
    MISSING = "missing"
    FINISHED = "finished"
    """The record is terminal."""
    STALE = "stale"
    """Another attempt took over."""
    REFUSED = "refused"
    """The move is not in the table."""


class ValidationStore:
    """Validations in Redis or Valkey.

    Of one tenant; without a tenant it finds those of all by id, as workers do.
    """

    def __init__(
        self, client: redis.Redis, *, retention: timedelta | None, tenant: str | None = None
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._retention = retention
        self._change = client.register_script(_CHANGE)
        self._request_cancel = client.register_script(_REQUEST_CANCEL)

    def create(self, validation: Validation, *, devices: int = 1) -> None:
        """Store a new record with its index entries and its first event, all or nothing.

        It waits for a node on which it can lease so many devices.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        identifier, tenant = validation.id, self._tenant or keys.DEFAULT_TENANT
        index = keys.validations_of_recommendation(validation.recommendation_id)
        line = WaitingRun(
            queue=validation.queue, tenant=tenant, identifier=identifier, devices=devices
        )
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipe:
            fields = _fields_of(validation) | {"tenant": tenant, "devices": devices}
            pipe.hset(keys.validation(identifier), mapping=fields)
            pipe.zadd(keys.waiting_runs(), {line.member: 0})
            pipe.zadd(index, {identifier: 0})
            pipe.sadd(keys.unfinished_validations(), identifier)
            event: dict[Any, Any] = {"event": "status", "data": _status_event(validation)}
            pipe.xadd(keys.validation_events(identifier), event)
            if self._retention:
                for key in (keys.validation(identifier), keys.validation_events(identifier), index):
                    pipe.expire(key, self._retention)
            pipe.execute()

    def find(self, identifier: str) -> Validation | None:
        """Return a record with its load points so far, or None.

        Raises:
            UnreadableRecord: Another release wrote it, and this one has no words for it.
        """
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.validation(identifier))
            pipe.lrange(keys.validation_points(identifier), 0, -1)
            fields, points = pipe.execute()
        named = {text(name): value for name, value in fields.items()}
        if not named or not is_visible(named.pop("tenant", None), to=self._tenant):
            return None
        return _assemble(named, points)

    def tenant_of(self, identifier: str) -> str:
        """Return the tenant whose validation this is."""
        with reaching_the_store():
            tenant = self._client.hget(keys.validation(identifier), "tenant")
        return keys.DEFAULT_TENANT if tenant is None else text(tenant)

    def waiting_run(self, identifier: str) -> WaitingRun:
        """Return the entry under which it waits, or waited, for a worker."""
        with reaching_the_store():
            queue, tenant, devices = self._client.hmget(
                keys.validation(identifier), ["queue", "tenant", "devices"]
            )
        return WaitingRun(
            queue=msgspec.json.decode(queue, type=str) if queue else "",
            tenant=text(tenant) if tenant else keys.DEFAULT_TENANT,
            identifier=identifier,
            devices=int(devices or 1),
        )

    def of_recommendation(self, identifier: str) -> list[Validation]:
        """Return the validations of a recommendation, newest first."""
        with reaching_the_store():
            ids = self._client.zrange(keys.validations_of_recommendation(identifier), 0, -1)
        found = (self._readable(text(member)) for member in reversed(ids))
        return [validation for validation in found if validation is not None]

    def _readable(self, identifier: str) -> Validation | None:
        """Return a record, or None when there is none that this release can read."""
        try:
            return self.find(identifier)
        except UnreadableRecord as error:
            _log.warning("record_unreadable", id=identifier, reason=str(error))
            return None

    def unfinished(self) -> list[str]:
        """Return the ids of validations that have not ended, oldest first."""
        with reaching_the_store():
            return sorted(text(m) for m in self._client.smembers(keys.unfinished_validations()))

    def change(
        self,
        identifier: str,
        *,
        attempt: int,
        to: ValidationStatus | None = None,
        load_point: LoadPoint | None = None,
        next_attempt: int | None = None,
        **fields: Any,  # noqa: ANN401  # fields of the record
    ) -> Change:
        """Move the state, set fields, add a load point and an event, all in one step.

        Going back to `queued` drops the load points: the next attempt measures anew. Whoever makes
        the last move, the webhook of the plan becomes due with it.
        """
        point = msgspec.json.encode(load_point) if load_point else b""
        said = {key: fields[key] for key in _TOLD if key in fields}
        change = ValidationChange(id=identifier, status=to or UNSET, **said)
        data = point if load_point else msgspec.json.encode(change)
        pairs = [part for key, value in fields.items() for part in (key, _json(value))]
        with reaching_the_store():
            outcome = self._change(
                keys=[*_keys(identifier)],
                args=[
                    msgspec.json.encode(ALLOWED_MOVES),
                    str(attempt),
                    to or "",
                    point,
                    "load_point" if load_point else "status",
                    data,
                    MOST_EVENTS,
                    identifier,
                    str(next_attempt or attempt),
                    self.waiting_run(identifier).member if to else b"",
                    *pairs,
                ],
            )
            if self._retention and load_point:
                self._client.expire(keys.validation_points(identifier), self._retention)
        return Change(text(outcome))

    def end_unreadable(self, identifier: str, *, failure: Failure, finished_at: str) -> Change:
        """End a record as failed that this release cannot read."""
        with reaching_the_store():
            attempt = self._client.hget(keys.validation(identifier), "attempt")
        return self.change(
            identifier,
            attempt=int(attempt or 1),
            to="failed",
            stage=failure.stage,
            progress=1.0,
            failure=failure,
            verdict="inconclusive",
            finished_at=finished_at,
        )

    def request_cancel(self, identifier: str) -> bool:
        """Ask the running process to end; tell whether the record exists."""
        with reaching_the_store():
            return bool(self._request_cancel(keys=[keys.validation(identifier)]))

    def cancel_requested(self, identifier: str) -> bool:
        """Tell whether somebody asked to end it."""
        with reaching_the_store():
            return self._client.hget(keys.validation(identifier), "cancel") is not None

    def keep_claim(self, identifier: str, *, owner: str, attempt: int) -> bool:
        """Say that a process works on it, until the next call is overdue.

        False: the run was given to another attempt, which this one must not disturb.
        """
        return claims.keep(
            self._client,
            record=keys.validation(identifier),
            claim=keys.validation_owner(identifier),
            owner=owner,
            attempt=attempt,
        )

    def drop_claim(self, identifier: str, *, attempt: int) -> None:
        """Say that nobody works on it any more, unless another attempt does."""
        record, claim = keys.validation(identifier), keys.validation_owner(identifier)
        claims.drop(self._client, record=record, claim=claim, attempt=attempt)

    def is_claimed(self, identifier: str) -> bool:
        """Tell whether a live process works on it."""
        with reaching_the_store():
            return bool(self._client.exists(keys.validation_owner(identifier)))

    def events(self, identifier: str, *, after: str, limit: int = 100) -> list[Event]:
        """Return what happened after this event id ("0" for all), oldest first."""
        key = keys.validation_events(identifier)
        return events_after(self._client, key, after=after, limit=limit)

    def forget_recommendation(self, identifier: str) -> None:
        """Drop the index of a recommendation that is gone; its validations stay readable."""
        with reaching_the_store():
            self._client.delete(keys.validations_of_recommendation(identifier))


def is_finished(validation: Validation) -> bool:
    """Tell whether the record can no longer change."""
    return validation.status in TERMINAL


def _keys(identifier: str) -> tuple[str, ...]:
    return (
        keys.validation(identifier),
        keys.validation_points(identifier),
        keys.validation_events(identifier),
        keys.unfinished_validations(),
        keys.validation_owner(identifier),
        keys.waiting_runs(),
        keys.leasing_runs(),
        keys.due_webhooks(),
    )


def _fields_of(validation: Validation) -> dict[Any, Any]:
    return {
        name: _json(getattr(validation, name))
        for name in validation.__struct_fields__
        if name != _POINTS
    }


def _json(value: Any) -> bytes:  # noqa: ANN401  # any field of the record
    return msgspec.json.encode(value)


def _status_event(validation: Validation) -> bytes:
    return msgspec.json.encode(
        ValidationChange(
            id=validation.id,
            status=validation.status,
            stage=validation.stage,
            progress=validation.progress,
        )
    )


def _assemble(fields: dict[Any, Any], points: Iterable[bytes]) -> Validation:
    """Return the record from its stored fields; unknown ones are of a later version."""
    known = Validation.__struct_fields__
    raw = {
        name: msgspec.Raw(binary(value))
        for key, value in fields.items()
        if (name := text(key)) in known
    }
    raw[_POINTS] = msgspec.Raw(b"[" + b",".join(binary(point) for point in points) + b"]")
    return decode_record(msgspec.json.encode(raw), Validation)
