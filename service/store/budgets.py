"""Budgets: token buckets that all processes share, each step in one Lua script."""

import msgspec
import redis

from service.store import keys
from service.store.client import reaching_the_store

_TAKE = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local capacity, per_ms, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local held = redis.call('HMGET', KEYS[1], 'level', 'at_ms')
local level = tonumber(held[1]) or capacity
local at_ms = tonumber(held[2]) or now_ms
level = math.min(capacity, level + math.max(0, now_ms - at_ms) * per_ms)
local taken = 0
if level >= wanted then
  level = level - wanted
  taken = 1
end
redis.call('HSET', KEYS[1], 'level', tostring(level), 'at_ms', now_ms)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / per_ms) + 1000)
return {taken, tostring(level)}
"""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be used in a window; what is unused comes back steadily."""

    name: str
    capacity: float
    window_s: float


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an amount was granted, and what is left."""

    granted: bool
    left: float
    wait_s: float
    """Seconds until as much can be had; 0 when it was granted."""


class Budgets:
    """Buckets in Redis or Valkey, on the store's own clock."""

    def __init__(self, client: redis.Redis) -> None:
        self._take = client.register_script(_TAKE)

    def take(self, budget: Budget, *, holder: str, amount: float = 1.0) -> Take:
        """Take an amount from a holder's bucket, or nothing.

        Raises:
            StoreUnavailable: It is not known.
        """
        per_ms = budget.capacity / (budget.window_s * 1000)
        with reaching_the_store():
            taken, level = self._take(
                keys=[keys.token_bucket(budget.name, holder)],
                args=[repr(budget.capacity), repr(per_ms), repr(amount)],
            )
        left = float(level)
        wait_s = 0.0 if taken else max(0.0, amount - left) / per_ms / 1000
        return Take(granted=bool(taken), left=left, wait_s=wait_s)
