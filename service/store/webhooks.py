"""Webhook deliveries in Redis or Valkey: an outbox with its log.

The step that ends a validation or a study makes its message due, so that none is lost and none is
made twice; the log begins when somebody looks at it or tries. When a message is due stands in the
store alone: a restart forgets no retry. Processes that deliver lease what is due; one that dies
leaves it to the next.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import redis

from api_schemas.study import STUDY_ENDS, Study
from api_schemas.validation import TERMINAL, Validation
from api_schemas.webhook import DeliveryAttempt, DeliveryStatus, WebhookDelivery
from service.identifiers import timestamp
from service.log import get_logger
from service.store import keys
from service.store.client import binary, is_visible, reaching_the_store, text
from service.store.decoding import UnreadableRecord, decode_record
from service.store.studies import StudyStore
from service.store.validations import ValidationStore

_log = get_logger(__name__)
MOST_ATTEMPTS_KEPT = 100
_ATTEMPTS = "attempts"
_MOST_OPENED = 1000
"""Messages that one look at the list begins the log of."""
_CLAIM = """
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
for _, member in ipairs(due) do
  redis.call('ZADD', KEYS[1], ARGV[2], member)
end
return due
"""
_RECORD = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('ZREM', KEYS[3], ARGV[1])
  return 0
end
redis.call('RPUSH', KEYS[2], ARGV[2])
redis.call('LTRIM', KEYS[2], -tonumber(ARGV[3]), -1)
local lifetime = redis.call('PTTL', KEYS[1])
if lifetime > 0 then
  redis.call('PEXPIRE', KEYS[2], lifetime)
end
redis.call('HINCRBY', KEYS[4], ARGV[4], 1)
local mine = redis.call('ZSCORE', KEYS[3], ARGV[1])
if not mine or tonumber(mine) ~= tonumber(ARGV[5]) then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'tries', 1)
redis.call('HSET', KEYS[1], 'status', ARGV[6], 'next_attempt_at', ARGV[7])
if ARGV[8] == '' then
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  redis.call('ZADD', KEYS[3], ARGV[8], ARGV[1])
end
return 1
"""
_PUT_OFF = """
local mine = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not mine or tonumber(mine) ~= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return 1
"""
_REPLAY = """
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'status', '"pending"', 'next_attempt_at', 'null', 'tries', 0)
redis.call('HINCRBY', KEYS[1], 'replays', 1)
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
"""
_OPEN = """
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
for index = 3, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1])
end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
"""


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that this process may try now, and how often it was tried since it was asked."""

    delivery: WebhookDelivery
    tries: int
    lease_until_ms: int

    @property
    def number(self) -> int:
        """The number of the next try over all replays."""
        attempts = self.delivery.attempts
        return attempts[-1].number + 1 if attempts else 1


class WebhookStore:
    """Deliveries of one tenant; without a tenant those of all, as processes that deliver see."""

    def __init__(
        self, client: redis.Redis, *, retention: timedelta | None, tenant: str | None = None
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._retention = retention
        self._validations = ValidationStore(client, retention=retention)
        self._studies = StudyStore(client)
        self._open = client.register_script(_OPEN)
        self._claim = client.register_script(_CLAIM)
        self._record = client.register_script(_RECORD)
        self._put_off = client.register_script(_PUT_OFF)
        self._replay = client.register_script(_REPLAY)

    def find(self, identifier: str) -> WebhookDelivery | None:
        """Return a delivery with its tries, or None."""
        found = self._load(identifier)
        return None if found is None else found[0]

    def page(
        self, *, limit: int, after: str | None = None
    ) -> tuple[list[WebhookDelivery], str | None]:
        """Return up to `limit` deliveries older than `after`, and where the next page starts."""
        self._open_new()
        index = keys.webhook_deliveries(tenant=self._tenant or keys.DEFAULT_TENANT)
        found: list[WebhookDelivery] = []
        position, more = after, True
        while more and len(found) <= limit:
            newest = f"({position}" if position else "+"
            with reaching_the_store():
                ids: Any = self._client.zrevrangebylex(index, newest, "-", start=0, num=limit + 1)
            names = [text(identifier) for identifier in ids]
            more, position = len(names) > limit, names[-1] if names else None
            loaded = [(name, self.find(name)) for name in names]
            found += [item for _, item in loaded if item is not None]
            self._forget(index, [name for name, item in loaded if item is None])
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    def of_run(self, identifier: str) -> list[WebhookDelivery]:
        """Return what was sent of a validation or a study."""
        self._open_new()
        found = self.find(identifier)
        return [] if found is None else [found]

    def told_of(self, delivery: WebhookDelivery) -> Validation | Study | None:
        """Return the record that a delivery tells of, or None when it was removed."""
        return self._ended(delivery.id)

    def replay(self, identifier: str) -> WebhookDelivery | None:
        """Make a delivery due at once, whatever became of it; None when there is none."""
        if self.find(identifier) is None:
            return None
        with reaching_the_store():
            self._replay(
                keys=[keys.webhook_delivery(identifier), keys.due_webhooks()], args=[identifier]
            )
        return self.find(identifier)

    def claim(self, *, now: datetime, lease: timedelta, limit: int) -> list[Claimed]:
        """Return deliveries that are due; nobody else gets them until the lease ends."""
        until_ms = _milliseconds(now + lease)
        with reaching_the_store():
            due: Any = self._claim(
                keys=[keys.due_webhooks()], args=[_milliseconds(now), until_ms, limit]
            )
        names = [text(identifier) for identifier in due]
        self._begin(names)
        loaded = [(name, self._load(name)) for name in names]
        self._forget(keys.due_webhooks(), [name for name, found in loaded if found is None])
        return [
            Claimed(delivery=found[0], tries=found[1], lease_until_ms=until_ms)
            for _, found in loaded
            if found is not None
        ]

    def put_off(self, claimed: Claimed, *, until: datetime) -> bool:
        """Give a claimed delivery back untried, due again later; tell whether the lease held."""
        with reaching_the_store():
            kept: Any = self._put_off(
                keys=[keys.due_webhooks()],
                args=[claimed.delivery.id, claimed.lease_until_ms, _milliseconds(until)],
            )
        return bool(kept)

    def record(
        self,
        claimed: Claimed,
        attempt: DeliveryAttempt,
        *,
        status: DeliveryStatus,
        next_attempt: datetime | None,
    ) -> bool:
        """Log a try and what follows; tell whether the lease still held.

        When it did not, somebody asked for a replay meanwhile: that stays due.
        """
        identifier = claimed.delivery.id
        next_at = None if next_attempt is None else timestamp(next_attempt)
        with reaching_the_store():
            kept: Any = self._record(
                keys=[
                    keys.webhook_delivery(identifier),
                    keys.webhook_attempts(identifier),
                    keys.due_webhooks(),
                    keys.webhook_outcomes(),
                ],
                args=[
                    identifier,
                    msgspec.json.encode(attempt),
                    MOST_ATTEMPTS_KEPT,
                    attempt.outcome,
                    claimed.lease_until_ms,
                    msgspec.json.encode(status),
                    msgspec.json.encode(next_at),
                    "" if next_attempt is None else _milliseconds(next_attempt),
                ],
            )
        return bool(kept)

    def outcomes(self) -> dict[str, int]:
        """Return how many tries ended how, over all tenants and for good."""
        with reaching_the_store():
            found: Any = self._client.hgetall(keys.webhook_outcomes())
        return {text(name): int(count) for name, count in found.items()}

    def pending(self) -> int:
        """Return how many deliveries wait for a try, over all tenants."""
        with reaching_the_store():
            count: Any = self._client.zcard(keys.due_webhooks())
        return int(count)

    def _open_new(self) -> None:
        """Begin the log of messages that nobody has tried yet."""
        with reaching_the_store():
            new: Any = self._client.zrangebyscore(
                keys.due_webhooks(), "-inf", 0, start=0, num=_MOST_OPENED
            )
        self._begin(text(identifier) for identifier in new)

    def _begin(self, identifiers: Iterable[str]) -> None:
        for identifier in identifiers:
            with reaching_the_store():
                if self._client.exists(keys.webhook_delivery(identifier)):
                    continue
            record = self._ended(identifier)
            delivery = None if record is None else _message_of(record)
            if delivery is not None:
                store = self._studies if delivery.study_id else self._validations
                self._write(delivery, tenant=store.tenant_of(identifier))

    def _ended(self, identifier: str) -> Validation | Study | None:
        """Return the record with this id; ids of validations and studies never meet."""
        try:
            return self._validations.find(identifier) or self._studies.find(identifier)
        except UnreadableRecord as error:
            _log.warning("record_unreadable", id=identifier, reason=str(error))
            return None

    def _write(self, delivery: WebhookDelivery, *, tenant: str) -> None:
        fields: dict[str, Any] = {
            name: msgspec.json.encode(getattr(delivery, name))
            for name in delivery.__struct_fields__
            if name != _ATTEMPTS
        }
        fields["tenant"] = tenant
        lifetime = 0 if self._retention is None else _length_ms(self._retention)
        with reaching_the_store():
            self._open(
                keys=[
                    keys.webhook_delivery(delivery.id),
                    keys.webhook_deliveries(tenant=tenant),
                ],
                args=[delivery.id, lifetime, *(part for pair in fields.items() for part in pair)],
            )

    def _load(self, identifier: str) -> tuple[WebhookDelivery, int] | None:
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.webhook_delivery(identifier))
            pipe.lrange(keys.webhook_attempts(identifier), 0, -1)
            fields, attempts = pipe.execute()
        named = {text(name): binary(value) for name, value in fields.items()}
        if "id" not in named or not is_visible(named.pop("tenant", None), to=self._tenant):
            return None
        tries = int(named.pop("tries", b"0"))
        raw = {
            name: msgspec.Raw(value)
            for name, value in named.items()
            if name in WebhookDelivery.__struct_fields__
        }
        raw[_ATTEMPTS] = msgspec.Raw(b"[" + b",".join(binary(item) for item in attempts) + b"]")
        return decode_record(msgspec.json.encode(raw), WebhookDelivery), tries

    def _forget(self, index: str, identifiers: list[str]) -> None:
        """Drop what has run out from an index, unless it is another tenant's."""
        with reaching_the_store():
            for identifier in identifiers:
                if not self._client.exists(keys.webhook_delivery(identifier)):
                    self._client.zrem(index, identifier)


def _message_of(record: Validation | Study) -> WebhookDelivery | None:
    """Return the delivery that tells of an end; None when there is none, or nobody asked for it."""
    is_study = isinstance(record, Study)
    hook = record.request.webhook if isinstance(record, Study) else record.plan.webhook
    if hook is None or record.status not in TERMINAL | STUDY_ENDS:
        return None
    return WebhookDelivery(
        id=record.id,
        validation_id=None if is_study else record.id,
        study_id=record.id if is_study else None,
        event=f"{'study' if is_study else 'validation'}.{record.status}",
        url=hook.url,
        secret_ref=hook.secret_ref,
        status="pending",
        created_at=record.finished_at or record.created_at,
    )


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _length_ms(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)
