"""One clock for all processes, on every kind of server."""

import redis

from service.store.client import binary, store_time


def test_the_stores_clock_is_read_whatever_the_processes_clock_says(client: redis.Redis) -> None:
    """It is UTC, does not go back, and is the clock that the store's own entries carry."""
    first = store_time(client)
    entry = binary(client.xadd("probe", {"a": "b"}))  # type: ignore[arg-type]  # an id
    second = store_time(client)

    at_ms = int(entry.split(b"-")[0])
    assert first.utcoffset() is not None
    assert int(first.timestamp() * 1000) <= at_ms <= int(second.timestamp() * 1000)
