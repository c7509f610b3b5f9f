"""Measurements and what was learned from them, in Redis or Valkey."""

from typing import Any

import msgspec
import redis

from api_schemas.measurement import Calibration, Measurement
from service.store import keys
from service.store.client import binary, is_visible, reaching_the_store, text
from service.store.decoding import decode_record
from service.store.indexes import ids_in_all
from service.store.prediction_errors import PredictionErrorStore
from service.store.scripts import delete_with_indexes

_SAVE_ONCE = """
local known = redis.call('GET', KEYS[2])
if known and redis.call('EXISTS', ARGV[5] .. known) == 1 then
  return known
end
redis.call('HSET', KEYS[1], 'record', ARGV[2], 'indexes', ARGV[3], 'tenant', ARGV[4])
redis.call('SET', KEYS[2], ARGV[1])
for _, index in ipairs(cjson.decode(ARGV[3])) do
  redis.call('ZADD', index, 0, ARGV[1])
end
return ARGV[1]
"""


class MeasurementFilters(msgspec.Struct, frozen=True, kw_only=True):
    """What a listed measurement must match; None is anything."""

    model: str | None = None
    gpu: str | None = None
    engine_version: str | None = None
    tool: str | None = None
    backend: str | None = None
    """`cpu` or `gpu`."""
    configuration: str | None = None


class MeasurementRows(msgspec.Struct, frozen=True, kw_only=True):
    """One page, newest first."""

    records: list[Measurement]
    last_id: str | None
    """Where the next page starts; None on the last one."""


class MeasurementStore:
    """Measurements and calibrations of one tenant."""

    def __init__(self, client: redis.Redis, *, tenant: str = keys.DEFAULT_TENANT) -> None:
        self._client = client
        self._tenant = tenant
        self.errors = PredictionErrorStore(client)
        self._save_once = client.register_script(_SAVE_ONCE)

    def save(self, record: Measurement, *, gpu: str) -> Measurement:
        """Store a measurement, or return the one that has the same content already.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        tenant = self._tenant
        own = _indexes(_filters_of(record, gpu=gpu), tenant=tenant)
        indexes = [keys.measurements(tenant=tenant), *own]
        with reaching_the_store():
            found = self._save_once(
                keys=[
                    keys.measurement(record.id),
                    keys.measurement_of_content(record.digest, tenant=tenant),
                ],
                args=[
                    record.id,
                    msgspec.json.encode(record),
                    msgspec.json.encode(indexes),
                    self._tenant,
                    keys.measurement(""),
                ],
            )
        stored = text(found)
        if stored == record.id:
            return record
        return self.find(stored) or record

    def find(self, identifier: str) -> Measurement | None:
        """Return a measurement, or None."""
        with reaching_the_store():
            record, tenant = self._client.hmget(keys.measurement(identifier), ["record", "tenant"])
        if record is None or not is_visible(tenant, to=self._tenant):
            return None
        return _measurement(record)

    def delete(self, identifier: str) -> Measurement | None:
        """Remove a measurement with its index entries; return what it was, or None."""
        record = self.find(identifier)
        if record is None:
            return None
        with reaching_the_store():
            self._client.delete(keys.measurement_of_content(record.digest, tenant=self._tenant))
            delete_with_indexes(self._client, keys.measurement(identifier), member=identifier)
        return record

    def page(
        self, filters: MeasurementFilters, *, limit: int, after: str | None = None
    ) -> MeasurementRows:
        """Return up to `limit` measurements that match, older than the id `after`."""
        indexes = _indexes(filters, tenant=self._tenant)
        indexes = indexes or [keys.measurements(tenant=self._tenant)]
        records: list[Measurement] = []
        with reaching_the_store():
            for ids in ids_in_all(self._client, indexes, after=after):
                records += self._load(ids)
                if len(records) > limit:
                    break
        shown = records[:limit]
        more = len(records) > limit
        return MeasurementRows(records=shown, last_id=shown[-1].id if more else None)

    def of_configuration(self, configuration: str, *, limit: int) -> list[Measurement]:
        """Return the newest measurements of a configuration, oldest first."""
        rows = self.page(MeasurementFilters(configuration=configuration), limit=limit)
        return rows.records[::-1]

    def save_calibration(self, record: Calibration) -> None:
        """Keep what was learned of a configuration, in place of what was known before.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipeline:
            body: Any = msgspec.json.encode(record)
            of_gpu = keys.calibrations_of(record.gpu, tenant=self._tenant)
            pipeline.hset(of_gpu, record.configuration, body)
            pipeline.sadd(keys.calibrated_gpus(tenant=self._tenant), record.gpu)
            pipeline.execute()

    def drop_calibration(self, *, gpu: str, configuration: str) -> None:
        """Forget a configuration that no measurement is left of."""
        with reaching_the_store():
            self._client.hdel(keys.calibrations_of(gpu, tenant=self._tenant), configuration)

    def calibrations_of(self, gpu: str) -> list[Calibration]:
        """Return the calibrations on a GPU, by configuration."""
        with reaching_the_store():
            found: Any = self._client.hgetall(keys.calibrations_of(gpu, tenant=self._tenant))
        records = [decode_record(binary(value), Calibration) for value in found.values()]
        return sorted(records, key=lambda record: record.configuration)

    def calibrated_gpus(self) -> list[str]:
        """Return the GPUs that have calibrations, by name."""
        with reaching_the_store():
            found = self._client.smembers(keys.calibrated_gpus(tenant=self._tenant))
        return sorted(text(name) for name in found)

    def _load(self, ids: list[str]) -> list[Measurement]:
        with self._client.pipeline(transaction=False) as pipeline:
            for identifier in ids:
                pipeline.hget(keys.measurement(identifier), "record")
            found = pipeline.execute()
        return [_measurement(record) for record in found if record is not None]


def _filters_of(record: Measurement, *, gpu: str) -> MeasurementFilters:
    return MeasurementFilters(
        model=record.model.id,
        gpu=gpu,
        engine_version=record.engine.version,
        tool=record.source.tool,
        backend="cpu" if record.cpu else "gpu",
        configuration=record.configuration,
    )


def _indexes(filters: MeasurementFilters, *, tenant: str) -> list[str]:
    """Return the index of each filter that is set, the narrowest kinds first."""
    kinds = ("configuration", "engine_version", "model", "gpu", "tool", "backend")
    return [
        keys.measurements_of(kind, value, tenant=tenant)
        for kind in kinds
        if (value := getattr(filters, kind)) is not None
    ]


def _measurement(record: bytes | str) -> Measurement:
    return decode_record(binary(record), Measurement)
