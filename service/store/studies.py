"""Studies in Redis or Valkey: the record in fields, its trials beside it.

The trials are all that a search needs to go on, so an interrupted study loses at most the trial
that was under way.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import redis

from api_schemas.event import StudyChange
from api_schemas.study import STUDY_ENDS, Study, StudyTrial
from api_schemas.validation import Failure
from service.log import get_logger
from service.store import claims, keys
from service.store.client import binary, is_visible, reaching_the_store, text
from service.store.decoding import UnreadableRecord, decode_record
from service.store.events import MOST_EVENTS, Event, events_after
from service.store.validations import Change
from service.store.waiting import WaitingRun

_log = get_logger(__name__)
_TRIALS = "trials"
_TOLD = ("status", "stage", "progress")
_CHANGE = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then
  return 'missing'
end
for _, ended in ipairs(cjson.decode(ARGV[1])) do
  if cjson.decode(status) == ended then
    return 'finished'
  end
end
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[2] then
  return 'stale'
end
if ARGV[3] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
for index = 10, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1])
end
status = cjson.decode(redis.call('HGET', KEYS[1], 'status'))
if status == 'queued' then
  redis.call('ZADD', KEYS[5], 0, ARGV[6])
else
  redis.call('ZREM', KEYS[5], ARGV[6])
end
if status ~= 'running' then
  redis.call('ZREM', KEYS[6], ARGV[6])
end
if ARGV[7] ~= '' then
  redis.call('XADD', KEYS[7], 'MAXLEN', '~', ARGV[9], '*', 'event', ARGV[7], 'data', ARGV[8])
end
for _, ended in ipairs(cjson.decode(ARGV[1])) do
  if status == ended then
    redis.call('SREM', KEYS[3], ARGV[5])
    redis.call('DEL', KEYS[4])
    local request = redis.call('HGET', KEYS[1], 'request')
    local hook = request and cjson.decode(request)['webhook']
    if hook and hook ~= cjson.null then
      redis.call('ZADD', KEYS[8], 0, ARGV[5])
    end
  end
end
return 'done'
"""


class StudyStore:
    """Studies of one tenant; without a tenant it finds those of all by id, as workers do."""

    def __init__(self, client: redis.Redis, *, tenant: str | None = None) -> None:
        self._client = client
        self._tenant = tenant
        self._change = client.register_script(_CHANGE)

    def create(self, study: Study, *, devices: int = 1) -> None:
        """Store a new record with its index entries, all or nothing.

        It waits for a node on which it can lease so many devices.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        tenant = self._tenant or keys.DEFAULT_TENANT
        line = WaitingRun(
            queue=study.queue, tenant=tenant, identifier=study.id, kind="study", devices=devices
        )
        fields: dict[Any, Any] = {
            name: msgspec.json.encode(getattr(study, name))
            for name in study.__struct_fields__
            if name != _TRIALS
        }
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(keys.study(study.id), mapping=fields | {"tenant": tenant, "devices": devices})
            pipe.zadd(keys.studies(tenant=tenant), {study.id: 0})
            pipe.sadd(keys.unfinished_studies(), study.id)
            pipe.zadd(keys.waiting_runs(), {line.member: 0})
            name, data = _event_of(study.id, None, {k: getattr(study, k) for k in _TOLD})
            event: dict[Any, Any] = {"event": name, "data": data}
            pipe.xadd(keys.study_events(study.id), event)
            pipe.execute()

    def find(self, identifier: str) -> Study | None:
        """Return a study with its trials so far, or None.

        Raises:
            UnreadableRecord: Another release wrote it, and this one has no words for it.
        """
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.study(identifier))
            pipe.hvals(keys.study_trials(identifier))
            fields, trials = pipe.execute()
        named = {text(name): binary(value) for name, value in fields.items()}
        if not named or not is_visible(named.pop("tenant", None), to=self._tenant):
            return None
        return _assemble(named, trials)

    def page(self, *, limit: int, after: str | None = None) -> tuple[list[Study], str | None]:
        """Return up to `limit` studies older than `after`, and where the next page starts."""
        index = keys.studies(tenant=self._tenant or keys.DEFAULT_TENANT)
        newest = f"({after}" if after else "+"
        with reaching_the_store():
            ids = self._client.zrevrangebylex(index, newest, "-", start=0, num=limit + 1)
        names = [text(identifier) for identifier in ids]
        found = (self._readable(name) for name in names[:limit])
        studies = [study for study in found if study is not None]
        return studies, names[limit - 1] if len(names) > limit else None

    def _readable(self, identifier: str) -> Study | None:
        """Return a record, or None when there is none that this release can read."""
        try:
            return self.find(identifier)
        except UnreadableRecord as error:
            _log.warning("record_unreadable", id=identifier, reason=str(error))
            return None

    def tenant_of(self, identifier: str) -> str:
        """Return the tenant whose study this is."""
        with reaching_the_store():
            tenant = self._client.hget(keys.study(identifier), "tenant")
        return keys.DEFAULT_TENANT if tenant is None else text(tenant)

    def waiting_run(self, identifier: str) -> WaitingRun:
        """Return the entry under which it waits, or waited, for a worker."""
        with reaching_the_store():
            queue, tenant, devices = self._client.hmget(
                keys.study(identifier), ["queue", "tenant", "devices"]
            )
        return WaitingRun(
            queue=msgspec.json.decode(queue, type=str) if queue else "",
            tenant=text(tenant) if tenant else keys.DEFAULT_TENANT,
            identifier=identifier,
            devices=int(devices or 1),
            kind="study",
        )

    def unfinished(self) -> list[str]:
        """Return the ids of studies that have not ended, oldest first."""
        with reaching_the_store():
            return sorted(text(m) for m in self._client.smembers(keys.unfinished_studies()))

    def change(
        self,
        identifier: str,
        *,
        attempt: int,
        trial: StudyTrial | None = None,
        next_attempt: int | None = None,
        **fields: Any,  # noqa: ANN401  # fields of the record
    ) -> Change:
        """Set fields and a trial in one step, unless the study ended or went to another attempt.

        Whoever ends it, the webhook of its request becomes due with it.

        What readers follow, its status and stage or a trial, is an event of the same step.
        """
        changed: dict[str, Any] = dict(fields)
        if next_attempt is not None:
            changed["attempt"] = next_attempt
        pairs = [part for k, value in changed.items() for part in (k, msgspec.json.encode(value))]
        with reaching_the_store():
            outcome = self._change(
                keys=[
                    keys.study(identifier),
                    keys.study_trials(identifier),
                    keys.unfinished_studies(),
                    keys.study_owner(identifier),
                    keys.waiting_runs(),
                    keys.leasing_runs(),
                    keys.study_events(identifier),
                    keys.due_webhooks(),
                ],
                args=[
                    msgspec.json.encode(sorted(STUDY_ENDS)),
                    str(attempt),
                    "" if trial is None else str(trial.number),
                    b"" if trial is None else msgspec.json.encode(trial),
                    identifier,
                    self.waiting_run(identifier).member,
                    *_event_of(identifier, trial, fields),
                    MOST_EVENTS,
                    *pairs,
                ],
            )
        return Change(text(outcome))

    def end_unreadable(self, identifier: str, *, failure: Failure, finished_at: str) -> Change:
        """End a record as failed that this release cannot read."""
        with reaching_the_store():
            attempt = self._client.hget(keys.study(identifier), "attempt")
        return self.change(
            identifier,
            attempt=int(attempt or 1),
            status="failed",
            stage=failure.stage,
            progress=1.0,
            failure=failure,
            finished_at=finished_at,
        )

    def events(self, identifier: str, *, after: str, limit: int = 100) -> list[Event]:
        """Return what happened after this event id ("0" for all), oldest first."""
        return events_after(self._client, keys.study_events(identifier), after=after, limit=limit)

    def request_cancel(self, identifier: str) -> None:
        """Ask the running process to end."""
        with reaching_the_store():
            self._client.hset(keys.study(identifier), "cancel", "1")

    def cancel_requested(self, identifier: str) -> bool:
        """Tell whether somebody asked to end it."""
        with reaching_the_store():
            return self._client.hget(keys.study(identifier), "cancel") is not None

    def keep_claim(self, identifier: str, *, owner: str, attempt: int) -> bool:
        """Say that a process works on it, until the next call is overdue.

        False: the run was given to another attempt, which this one must not disturb.
        """
        return claims.keep(
            self._client,
            record=keys.study(identifier),
            claim=keys.study_owner(identifier),
            owner=owner,
            attempt=attempt,
        )

    def drop_claim(self, identifier: str, *, attempt: int) -> None:
        """Say that nobody works on it any more, unless another attempt does."""
        record, claim = keys.study(identifier), keys.study_owner(identifier)
        claims.drop(self._client, record=record, claim=claim, attempt=attempt)

    def is_claimed(self, identifier: str) -> bool:
        """Tell whether a live process works on it."""
        with reaching_the_store():
            return bool(self._client.exists(keys.study_owner(identifier)))


def is_ended(study: Study) -> bool:
    """Tell whether the record can no longer change."""
    return study.status in STUDY_ENDS


def _event_of(
    identifier: str, trial: StudyTrial | None, fields: Mapping[str, Any]
) -> tuple[str, bytes]:
    """Return name and data of the event of a change; no name when nobody needs to know.

    A trial is told without the figures of its load, which are in the study.
    """
    if trial is not None:
        return "trial", msgspec.json.encode(msgspec.structs.replace(trial, load_point=None))
    told = {name: fields[name] for name in _TOLD if name in fields}
    change = StudyChange(id=identifier, **told)
    return ("status" if told else ""), msgspec.json.encode(change)


def _assemble(fields: dict[str, bytes], trials: list[bytes]) -> Study:
    """Return the record from its stored fields; unknown ones are of a later version."""
    known = Study.__struct_fields__
    raw = {name: msgspec.Raw(value) for name, value in fields.items() if name in known}
    raw[_TRIALS] = msgspec.Raw(b"[" + b",".join(binary(trial) for trial in trials) + b"]")
    study = decode_record(msgspec.json.encode(raw), Study)
    ordered = sorted(study.trials, key=lambda trial: trial.number)
    return msgspec.structs.replace(study, trials=ordered)
