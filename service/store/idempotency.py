"""Keyed requests: who works on one, what it makes, and what was answered.

Two keys per request. The record lives long: fingerprint, the attempt (time and entropy of the ids
that it makes) and in the end the answer. The lock lives briefly and is renewed by its holder, so a
crash frees it; whoever takes it over makes the same ids again and thus no second record.
"""

import base64
import enum
import hashlib
from datetime import datetime
from typing import Any

import msgspec
import redis

from api_schemas.base import Record
from service.store import keys
from service.store.client import binary, reaching_the_store, text

_CLAIM = """
local known = redis.call('HGET', KEYS[1], 'fingerprint')
if known and known ~= ARGV[1] then
  return {'reused', ''}
end
local answer = known and redis.call('HGET', KEYS[1], 'answer')
if answer then
  return {'answered', answer}
end
if not redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then
  return {'running', ''}
end
if not known then
  redis.call('HSET', KEYS[1], 'fingerprint', ARGV[1], 'attempt', ARGV[4])
  redis.call('EXPIRE', KEYS[1], ARGV[5])
end
return {'claimed', redis.call('HGET', KEYS[1], 'attempt')}
"""
_RENEW = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[2], ARGV[2])
"""
_COMPLETE = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'answer', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return redis.call('DEL', KEYS[2])
"""
_ABANDON = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == 'forget' then
  redis.call('DEL', KEYS[1])
end
return redis.call('DEL', KEYS[2])
"""


class Attempt(Record, frozen=True, kw_only=True):
    """What the ids of a keyed request are made of: the same in every try."""

    started_at: datetime
    entropy: bytes


class KeyedAnswer(Record, frozen=True, kw_only=True):
    """An answer as it is replayed."""

    status: int
    headers: dict[str, str]
    media_type: str
    body: bytes


class ClaimState(enum.Enum):
    """What a request with a key finds."""

    CLAIMED = "claimed"
    ANSWERED = "answered"
    RUNNING = "running"
    REUSED = "reused"
    """The key came with another request before."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, with the attempt to work on or the answer to replay."""

    state: ClaimState
    attempt: Attempt | None = None
    answer: KeyedAnswer | None = None


class IdempotencyStore:
    """Keyed requests of one tenant in Redis or Valkey."""

    def __init__(self, client: redis.Redis, *, tenant: str) -> None:
        self._tenant = tenant
        self._claim = client.register_script(_CLAIM)
        self._renew = client.register_script(_RENEW)
        self._complete = client.register_script(_COMPLETE)
        self._abandon = client.register_script(_ABANDON)

    def claim(self, key: str, *, fingerprint: str, token: str, attempt: Attempt) -> Claim:
        """Take a key for the holder of `token`, or say why not; `attempt` counts for the first try.

        Raises:
            StoreUnavailable: It is not known whether it was taken; a lock runs out by itself.
        """
        args: list[Any] = [
            fingerprint,
            token,
            _milliseconds(keys.IDEMPOTENCY_LOCK_LIFETIME_S),
            msgspec.json.encode(attempt),
            keys.IDEMPOTENCY_LIFETIME_S,
        ]
        with reaching_the_store():
            found, content = self._claim(keys=self._keys(key), args=args)
        state = ClaimState(text(found))
        if state is ClaimState.CLAIMED:
            known = msgspec.json.decode(binary(content), type=Attempt)
            return Claim(state=state, attempt=known)
        if state is ClaimState.ANSWERED:
            answer = msgspec.json.decode(binary(content), type=KeyedAnswer)
            return Claim(state=state, answer=answer)
        return Claim(state=state)

    def renew(self, key: str, *, token: str) -> bool:
        """Keep the lock for another lifetime; tell whether it was still held."""
        lifetime = _milliseconds(keys.IDEMPOTENCY_LOCK_LIFETIME_S)
        with reaching_the_store():
            return bool(self._renew(keys=self._keys(key), args=[token, lifetime]))

    def complete(self, key: str, *, token: str, answer: KeyedAnswer) -> bool:
        """Keep the answer and free the key; tell whether the lock was still held."""
        args: list[Any] = [token, msgspec.json.encode(answer), keys.IDEMPOTENCY_LIFETIME_S]
        with reaching_the_store():
            return bool(self._complete(keys=self._keys(key), args=args))

    def forget(self, key: str, *, token: str) -> None:
        """Free the key as if it had never come: nothing was made."""
        with reaching_the_store():
            self._abandon(keys=self._keys(key), args=[token, "forget"])

    def release(self, key: str, *, token: str) -> None:
        """Free the lock and keep the attempt: a record may have been made."""
        with reaching_the_store():
            self._abandon(keys=self._keys(key), args=[token, "keep"])

    def _keys(self, key: str) -> list[str]:
        digest = base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()).decode()
        return [
            keys.idempotent_request(self._tenant, digest),
            keys.idempotency_lock(self._tenant, digest),
        ]


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
