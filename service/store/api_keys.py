"""API keys at rest: a record and a hash of each, never the key."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import redis

from api_schemas.access import ApiKey, Scope
from service.access import NewSecret, digest_of, matches, new_secret, prefix_of
from service.identifiers import timestamp
from service.store import keys
from service.store.client import binary, reaching_the_store, text
from service.store.decoding import decode_record


class ApiKeyStore:
    """Keys in Redis or Valkey. Revoked and expired ones stay, so that the trail can be read."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def any_made(self) -> bool:
        """Tell whether a key was ever made: from then on every caller needs one."""
        with reaching_the_store():
            return bool(self._client.exists(keys.api_keys()))

    def create(
        self,
        *,
        name: str,
        tenant: str,
        scopes: list[Scope],
        created_by: str,
        at: datetime,
        expires_at: datetime | None = None,
    ) -> tuple[ApiKey, NewSecret]:
        """Store a new key; return its record and the key itself, for this one time.

        Raises:
            StoreUnavailable: It is not known to be stored.
        """
        secret = new_secret()
        record = ApiKey(
            id=secret.identifier,
            prefix=prefix_of(secret.identifier),
            name=name,
            tenant=tenant,
            scopes=list(dict.fromkeys(scopes)),
            created_at=timestamp(at),
            created_by=created_by,
            expires_at=None if expires_at is None else timestamp(expires_at),
        )
        fields: dict[Any, Any] = {
            "record": msgspec.json.encode(record),
            "digest": digest_of(secret.text),
        }
        with reaching_the_store(), self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(keys.api_key(record.id), mapping=fields)
            pipeline.zadd(keys.api_keys(), {record.id: at.timestamp()})
            pipeline.execute()
        return record, secret

    def find(self, identifier: str) -> ApiKey | None:
        """Return the record of a key, or None."""
        with reaching_the_store():
            found = self._client.hmget(keys.api_key(identifier), ["record", "last_used_at"])
        return _assemble(*found)

    def authenticate(self, identifier: str, secret: str) -> ApiKey | None:
        """Return the record of the key with this id when it is this very key; it may be expired."""
        with reaching_the_store():
            record, digest, last_used = self._client.hmget(
                keys.api_key(identifier), ["record", "digest", "last_used_at"]
            )
        if digest is None or not matches(secret, digest=text(digest)):
            return None
        return _assemble(record, last_used)

    def all(self, *, tenant: str | None = None) -> list[ApiKey]:
        """Return the keys of a tenant, or of all, the newest first."""
        with reaching_the_store():
            ids = [text(name) for name in self._client.zrevrange(keys.api_keys(), 0, -1)]
        found = (self.find(identifier) for identifier in ids)
        return [key for key in found if key and (tenant is None or key.tenant == tenant)]

    def revoke(self, identifier: str, *, at: datetime) -> ApiKey | None:
        """End a key now; return its record, None when there is none. Again changes nothing."""
        key = self.find(identifier)
        if key is None or key.revoked_at is not None:
            return key
        return self._replace(msgspec.structs.replace(key, revoked_at=timestamp(at)))

    def rotate(
        self, key: ApiKey, *, created_by: str, at: datetime, overlap: timedelta
    ) -> tuple[ApiKey, NewSecret]:
        """Make a key like this one, and let this one end after `overlap`."""
        ends = None if key.expires_at is None else datetime.fromisoformat(key.expires_at)
        made = self.create(
            name=key.name,
            tenant=key.tenant,
            scopes=key.scopes,
            created_by=created_by,
            at=at,
            expires_at=ends,
        )
        until = at + overlap if ends is None else min(at + overlap, ends)
        self._replace(msgspec.structs.replace(key, expires_at=timestamp(until)))
        return made

    def touch(self, identifier: str, *, at: datetime) -> None:
        """Remember that a key was used."""
        with reaching_the_store():
            self._client.hset(keys.api_key(identifier), "last_used_at", timestamp(at))

    def _replace(self, key: ApiKey) -> ApiKey:
        kept = msgspec.structs.replace(key, last_used_at=None)
        body: Any = msgspec.json.encode(kept)
        with reaching_the_store():
            self._client.hset(keys.api_key(key.id), "record", body)
        return key


def _assemble(record: bytes | str | None, last_used: bytes | str | None) -> ApiKey | None:
    if record is None:
        return None
    key = decode_record(binary(record), ApiKey)
    used = None if last_used is None else text(last_used)
    return msgspec.structs.replace(key, last_used_at=used)
