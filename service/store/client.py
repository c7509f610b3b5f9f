"""The one way to reach Redis or Valkey, with bounded waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from service.store.keys import DEFAULT_TENANT

_RETRIES = 1
_RETRY_PAUSE_S = 0.05


class StoreUnavailable(Exception):
    """The store did not answer, or refused; nothing was acknowledged."""


def connect(url: str, *, timeout_s: float) -> redis.Redis:
    """Return a client; no connection is made before its first command.

    One retry repairs a pooled connection that went stale while the store restarted. Every write of
    this service may be repeated without harm.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(ConstantBackoff(_RETRY_PAUSE_S), _RETRIES),
    )


@contextmanager
def reaching_the_store() -> Iterator[None]:
    """Turn every failure of the client into `StoreUnavailable`."""
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise StoreUnavailable(type(error).__name__) from error


def ping(client: redis.Redis) -> None:
    """Return when the store answers.

    Raises:
        StoreUnavailable: It did not in time.
    """
    with reaching_the_store():
        client.ping()


def store_time(client: redis.Redis) -> datetime:
    """Return the store's own time, which is one for all processes, whatever their clocks say.

    Raises:
        StoreUnavailable: It did not answer.
    """
    with reaching_the_store():
        answer: Any = client.time()
    seconds, microseconds = answer
    return datetime.fromtimestamp(int(seconds), tz=UTC).replace(microsecond=int(microseconds))


def text(value: object) -> str:
    """Return a name the store holds, however the client was told to decode."""
    return value.decode() if isinstance(value, bytes) else str(value)


def binary(value: bytes | str) -> bytes:
    """Return the bytes the store holds, however the client was told to decode."""
    return value if isinstance(value, bytes) else value.encode()


def is_visible(tenant: bytes | str | None, *, to: str | None) -> bool:
    """Tell whether a record of this tenant may be seen by another; None sees all.

    A record without a tenant is of the time before there were any: the default one's.
    """
    owner = DEFAULT_TENANT if tenant is None else text(tenant)
    return to is None or owner == to
