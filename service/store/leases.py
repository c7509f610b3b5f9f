"""Leases: who may use a device or a node. All of them or none, renewed, given back by token."""

from collections.abc import Sequence

import redis

from service.store import keys
from service.store.client import reaching_the_store

_ACQUIRE = """
for _, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[1] then
    return 0
  end
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
end
return 1
"""
_RELEASE = """
local released = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    released = released + redis.call('DEL', key)
  end
end
return released
"""


def acquire(
    client: redis.Redis,
    resources: Sequence[str],
    *,
    holder: str,
    lifetime_s: float = keys.LEASE_LIFETIME_S,
) -> bool:
    """Take all resources or none; taking what the holder already has renews it.

    After an outage of the store a lease that ran out is taken again, unless somebody else has it.

    Raises:
        StoreUnavailable: It is not known whether they were taken.
    """
    script = client.register_script(_ACQUIRE)
    names = [keys.lease(resource) for resource in resources]
    with reaching_the_store():
        return bool(script(keys=names, args=[holder, round(lifetime_s * 1000)]))


def release(client: redis.Redis, resources: Sequence[str], *, holder: str) -> int:
    """Give back what this holder has, and nothing of anybody else; return how many.

    Raises:
        StoreUnavailable: The store did not acknowledge it; the lease runs out by itself.
    """
    script = client.register_script(_RELEASE)
    with reaching_the_store():
        return int(script(keys=[keys.lease(name) for name in resources], args=[holder]))


def held(client: redis.Redis, resources: Sequence[str]) -> set[str]:
    """Return those resources that somebody holds.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    if not resources:
        return set()
    with reaching_the_store():
        tokens = client.mget([keys.lease(resource) for resource in resources])
    return {name for name, token in zip(resources, tokens, strict=True) if token is not None}
