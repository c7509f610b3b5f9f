"""How far predictions were off, counted by all processes in Redis or Valkey, for `GET /metrics`."""

from collections.abc import Mapping
from typing import Any

import msgspec
import redis

from service.store import keys
from service.store.client import reaching_the_store, text

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Upper ends of the buckets of the absolute error, relative to the measurement."""
MOST_GROUPS = 200
"""Combinations of GPU, model family and basis that are told apart; more are counted together."""
OTHER = "other"
_ADD = """
local group = ARGV[1]
if redis.call('SISMEMBER', KEYS[2], group) == 0 then
  if redis.call('SCARD', KEYS[2]) < tonumber(ARGV[3]) then
    redis.call('SADD', KEYS[2], group)
  else
    group = ARGV[2]
  end
end
for index = 4, #ARGV, 3 do
  local metric, error, bucket = ARGV[index], tonumber(ARGV[index + 1]), ARGV[index + 2]
  local field = group .. '\\n' .. metric .. '\\n'
  redis.call('HINCRBY', KEYS[1], field .. bucket, 1)
  redis.call('HINCRBYFLOAT', KEYS[1], field .. 'sum', string.format('%.9f', math.abs(error)))
  redis.call('HINCRBYFLOAT', KEYS[1], field .. 'signed', string.format('%.9f', error))
end
return 1
"""


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What predictions have in common whose errors are counted together."""

    gpu: str
    model_family: str
    basis: str


class ErrorCounts(msgspec.Struct, kw_only=True):
    """Errors of one figure: how many in each bucket, the last one above all bounds."""

    group: ErrorGroup
    metric: str
    buckets: list[int]
    sum: float = 0.0
    """Of the absolute errors."""
    signed_sum: float = 0.0

    @property
    def count(self) -> int:
        """How many predictions were compared."""
        return sum(self.buckets)


class PredictionErrorStore:
    """Counters over all tenants: they say nothing of whose measurement it was."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._add = client.register_script(_ADD)

    def add(self, group: ErrorGroup, errors: Mapping[str, float]) -> None:
        """Count the errors of one prediction, relative to what was measured.

        Raises:
            StoreUnavailable: They are not known to be counted.
        """
        if not errors:
            return
        rest = msgspec.structs.replace(group, gpu=OTHER, model_family=OTHER)
        parts = [
            part
            for metric, error in errors.items()
            for part in (metric, repr(error), str(_bucket(error)))
        ]
        with reaching_the_store():
            self._add(
                keys=[keys.prediction_errors(), keys.prediction_error_groups()],
                args=[_text(group), _text(rest), MOST_GROUPS, *parts],
            )

    def all(self) -> list[ErrorCounts]:
        """Return everything that was counted, in a steady order.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        with reaching_the_store():
            fields: Any = self._client.hgetall(keys.prediction_errors())
        counts: dict[tuple[str, str], ErrorCounts] = {}
        for field, value in sorted((text(name), text(value)) for name, value in fields.items()):
            group, metric, kind = field.split("\n")
            series = counts.setdefault((group, metric), _empty(group, metric))
            match kind:
                case "sum":
                    series.sum = float(value)
                case "signed":
                    series.signed_sum = float(value)
                case _:
                    series.buckets[int(kind)] = int(value)
        return list(counts.values())


def _bucket(error: float) -> int:
    size = abs(error)
    return next((place for place, bound in enumerate(BOUNDS) if size <= bound), len(BOUNDS))


def _empty(group: str, metric: str) -> ErrorCounts:
    found = msgspec.json.decode(group, type=ErrorGroup)
    return ErrorCounts(group=found, metric=metric, buckets=[0] * (len(BOUNDS) + 1))


def _text(group: ErrorGroup) -> str:
    return msgspec.json.encode(group, order="sorted").decode()
