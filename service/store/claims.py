"""Claims on runs: who works on one now. Only the attempt that the record names may keep or drop it.

A process that was stopped for a while comes back when its run was given to another: what it does
then must not touch the claim of its successor.
"""

import redis

from service.store import keys
from service.store.client import reaching_the_store

_KEEP = """
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
return 1
"""
_DROP = """
if redis.call('HGET', KEYS[1], 'attempt') ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[2])
"""


def keep(client: redis.Redis, *, record: str, claim: str, owner: str, attempt: int) -> bool:
    """Renew a claim by the keys of record and claim; tell whether the run is still this attempt's.

    Raises:
        StoreUnavailable: It is not known.
    """
    script = client.register_script(_KEEP)
    with reaching_the_store():
        return bool(
            script(
                keys=[record, claim],
                args=[str(attempt), owner, keys.VALIDATION_OWNER_LIFETIME_S],
            )
        )


def drop(client: redis.Redis, *, record: str, claim: str, attempt: int) -> bool:
    """Give a claim back, unless another attempt has it; tell whether there was one.

    Raises:
        StoreUnavailable: It is not known; the claim runs out by itself.
    """
    script = client.register_script(_DROP)
    with reaching_the_store():
        return bool(script(keys=[record, claim], args=[str(attempt)]))
