"""Models that callers registered, and configs read from the model hub."""

import msgspec
import redis

from api_schemas.base import Json, Record
from service.store import keys
from service.store.client import binary, reaching_the_store, text
from service.store.decoding import decode_record


class ModelRecord(Record, frozen=True, kw_only=True):
    """A model's config.json with the size of its checkpoint."""

    id: str
    config: dict[str, Json]
    weights_bytes: int | None = None
    stored_at: str = ""
    revision: str | None = None


class ModelStore:
    """Models that one tenant registered; what the model hub shows is the same for all."""

    def __init__(self, client: redis.Redis, *, tenant: str = keys.DEFAULT_TENANT) -> None:
        self._client = client
        self._tenant = tenant

    def register(self, record: ModelRecord) -> bool:
        """Store a model under its id; tell whether it is new."""
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.set(self._key(record.id), msgspec.json.encode(record), get=True)
            pipeline.zadd(keys.registered_models(tenant=self._tenant), {record.id: 0})
            before, _ = pipeline.execute()
        return before is None

    def delete(self, model_id: str) -> bool:
        """Remove a registered model; tell whether there was one."""
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.delete(self._key(model_id))
            pipeline.zrem(keys.registered_models(tenant=self._tenant), model_id)
            removed, _ = pipeline.execute()
        return bool(removed)

    def find(self, model_id: str) -> ModelRecord | None:
        """Return the registered model, or None."""
        return self._read(self._key(model_id))

    def all(self) -> list[ModelRecord]:
        """Return every registered model by id."""
        with reaching_the_store():
            names = self._client.zrange(keys.registered_models(tenant=self._tenant), 0, -1)
            ids = [text(name) for name in names]
            if not ids:
                return []
            found = self._client.mget([self._key(name) for name in ids])
        return [_decode(record) for record in found if record is not None]

    def remember_from_hub(self, record: ModelRecord) -> None:
        """Keep a config read from the model hub for a day."""
        with reaching_the_store():
            self._client.set(
                keys.hub_model(record.id),
                msgspec.json.encode(record),
                ex=keys.HUB_MODEL_LIFETIME_S,
            )

    def find_from_hub(self, model_id: str) -> ModelRecord | None:
        """Return a config read from the model hub within the last day, or None."""
        return self._read(keys.hub_model(model_id))

    def _key(self, model_id: str) -> str:
        return keys.registered_model(model_id, tenant=self._tenant)

    def _read(self, key: str) -> ModelRecord | None:
        with reaching_the_store():
            record = self._client.get(key)
        return None if record is None else _decode(record)


def _decode(record: bytes | str) -> ModelRecord:
    return decode_record(binary(record), ModelRecord)
