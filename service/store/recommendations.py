"""Stored recommendations: the exact bytes that were answered, and the indexes to find them by."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import redis

from api_schemas.base import Record
from service.identifiers import earliest_id
from service.store import keys
from service.store.client import binary, is_visible, reaching_the_store
from service.store.decoding import decode_record
from service.store.indexes import ids_in_all
from service.store.scripts import delete_with_indexes


class RecommendationRecord(Record, frozen=True, kw_only=True):
    """What is known of a stored recommendation beside its bytes."""

    id: str
    created_at: str
    etag: str
    model: str
    gpu: str
    feasible: bool
    headline: str
    labels: dict[str, str]


class StoredBody(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that were answered, with their entity tag."""

    etag: str
    body: bytes


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What a listed recommendation must match; a label is `name` or `name=value`."""

    model: str | None = None
    gpu: str | None = None
    labels: tuple[str, ...] = ()


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page, newest first."""

    records: list[RecommendationRecord]
    last_id: str | None
    """Where the next page starts; None on the last one."""


class RecommendationStore:
    """Recommendations in Redis or Valkey.

    Of one tenant; without a tenant it finds those of all by id, as workers do.
    """

    def __init__(
        self, client: redis.Redis, *, retention: timedelta | None, tenant: str | None = None
    ) -> None:
        self._client = client
        self._retention = retention
        self._tenant = tenant

    def save(self, record: RecommendationRecord, body: bytes, *, at: datetime) -> None:
        """Store a recommendation and its index entries, all or nothing.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        indexes = _indexes(record, tenant=self._tenant or keys.DEFAULT_TENANT)
        key = keys.recommendation(record.id)
        fields: dict[Any, Any] = {
            "record": msgspec.json.encode(record),
            "body": body,
            "indexes": msgspec.json.encode(indexes),
            "tenant": self._tenant or keys.DEFAULT_TENANT,
        }
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(key, mapping=fields)
            for index in indexes:
                pipeline.zadd(index, {record.id: 0})
            if self._retention:
                self._let_expire(pipeline, [key, *indexes], at=at)
            pipeline.execute()

    def find(self, identifier: str) -> StoredBody | None:
        """Return the bytes that were answered, or None."""
        with reaching_the_store():
            record, body, tenant = self._client.hmget(
                keys.recommendation(identifier), ["record", "body", "tenant"]
            )
        if record is None or body is None or not is_visible(tenant, to=self._tenant):
            return None
        return StoredBody(etag=_decode(record).etag, body=binary(body))

    def delete(self, identifier: str) -> bool:
        """Remove a recommendation with its index entries; tell whether it was there."""
        if self.find(identifier) is None:
            return False
        with reaching_the_store():
            return delete_with_indexes(
                self._client, keys.recommendation(identifier), member=identifier
            )

    def page(self, filters: Filters, *, limit: int, after: str | None) -> RecordPage:
        """Return up to `limit` records that match, older than the id `after`."""
        with reaching_the_store():
            indexes = self._narrowest_first(
                _filter_indexes(filters, tenant=self._tenant or keys.DEFAULT_TENANT)
            )
            records: list[RecommendationRecord] = []
            for ids in ids_in_all(self._client, indexes, after=after):
                records += self._load(ids, index=indexes[0])
                if len(records) > limit:
                    break
        more = len(records) > limit
        shown = records[:limit]
        return RecordPage(records=shown, last_id=shown[-1].id if more else None)

    def _let_expire(
        self, pipeline: "redis.client.Pipeline", touched: list[str], *, at: datetime
    ) -> None:
        assert self._retention is not None  # noqa: S101  # the caller asked
        oldest_kept = earliest_id(at - self._retention)
        for key in touched:
            pipeline.expire(key, self._retention)
        for index in touched[1:]:
            pipeline.zremrangebylex(index, "-", f"({oldest_kept}")

    def _narrowest_first(self, indexes: list[str]) -> list[str]:
        if len(indexes) == 1:
            return indexes
        with self._client.pipeline(transaction=False) as pipeline:
            for index in indexes:
                pipeline.zcard(index)
            sizes = pipeline.execute()
        return [index for _, index in sorted(zip(sizes, indexes, strict=True))]

    def _load(self, ids: list[str], *, index: str) -> list[RecommendationRecord]:
        with self._client.pipeline(transaction=False) as pipeline:
            for identifier in ids:
                pipeline.hget(keys.recommendation(identifier), "record")
            found = pipeline.execute()
        gone = [name for name, record in zip(ids, found, strict=True) if record is None]
        if gone:  # expired: the index entry outlived its record
            self._client.zrem(index, *gone)
        return [_decode(record) for record in found if record is not None]


def _indexes(record: RecommendationRecord, *, tenant: str) -> list[str]:
    return [
        keys.recommendations(tenant=tenant),
        keys.recommendations_of_model(record.model, tenant=tenant),
        keys.recommendations_of_gpu(record.gpu, tenant=tenant),
        *(keys.recommendations_with_label(name, tenant=tenant) for name in record.labels),
        *(
            keys.recommendations_with_label_value(name, value, tenant=tenant)
            for name, value in record.labels.items()
        ),
    ]


def _filter_indexes(filters: Filters, *, tenant: str) -> list[str]:
    indexes = [keys.recommendations_of_model(filters.model, tenant=tenant)] if filters.model else []
    if filters.gpu:
        indexes.append(keys.recommendations_of_gpu(filters.gpu, tenant=tenant))
    for label in filters.labels:
        name, separator, value = label.partition("=")
        indexes.append(
            keys.recommendations_with_label_value(name, value, tenant=tenant)
            if separator
            else keys.recommendations_with_label(name, tenant=tenant)
        )
    return indexes or [keys.recommendations(tenant=tenant)]


def _decode(record: bytes | str) -> RecommendationRecord:
    return decode_record(binary(record), RecommendationRecord)
