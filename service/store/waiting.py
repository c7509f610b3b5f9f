"""Runs that wait for a worker, and whose turn it is: tenants take turns, each in its own order.

A waiting run is an entry of one sorted set, in text order: queue, devices, tenant, id, kind. Ids
sort by the time they were made, so the first entry of a tenant is its oldest run of that size.
Whoever takes a run gets, in one step, the oldest one that its node can serve, of the tenant whose
last turn in this queue is longest ago. What is too large for a node is passed over: it keeps its
place, and its tenant its turn, for a node that is large enough.
"""

from typing import Literal, Self

import msgspec
import redis

from service.store import keys
from service.store.client import binary, reaching_the_store, text

RunKind = Literal["validation", "study"]
_SEPARATOR = b"\n"
_PAST_ALL = b"\xff"
"""Sorts after every text, as no byte of UTF-8 is this large."""
_TAKE = r"""
local turns = {}
local seen = redis.call('HGETALL', KEYS[2])
for index = 1, #seen, 2 do
  turns[seen[index]] = tonumber(seen[index + 1])
end
local best, best_turn, best_id, best_tenant, best_kind
local from = '[' .. ARGV[1]
while true do
  local found = redis.call('ZRANGEBYLEX', KEYS[1], from, '[' .. ARGV[1] .. '\255', 'LIMIT', 0, 1)
  if #found == 0 then
    break
  end
  local devices, tenant, id, kind = string.match(
    string.sub(found[1], #ARGV[1] + 1), '^(.-)\n(.-)\n(.-)\n(.*)$')
  from = '(' .. ARGV[1] .. devices .. '\n'
  if tonumber(devices) <= tonumber(ARGV[6]) then
    from = from .. tenant .. '\n'
    local turn = turns[tenant] or 0
    if not best or turn < best_turn or (turn == best_turn and id < best_id) then
      best, best_turn, best_id, best_tenant, best_kind = found[1], turn, id, tenant, kind
    end
  end
  from = from .. '\255'
end
if not best then
  return false
end
local turn = redis.call('INCR', KEYS[3])
redis.call('ZREM', KEYS[1], best)
redis.call('HSET', KEYS[2], best_tenant, turn)
redis.call('EXPIRE', KEYS[2], ARGV[5])
redis.call('ZADD', KEYS[4], turn, best)
local owner = string.gsub(cjson.decode(ARGV[4])[best_kind], '{id}', best_id)
redis.call('SET', owner, ARGV[2], 'EX', ARGV[3])
return {best, turn}
"""
_UNSERVED = """
local now = tonumber(redis.call('TIME')[1])
local since = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], since or now, 'EX', ARGV[1])
return now - tonumber(since or now)
"""
_OWNER_KEYS = {
    "validation": keys.validation_owner("{id}"),
    "study": keys.study_owner("{id}"),
}


class WaitingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run as it waits: where, for whom, and which."""

    queue: str
    tenant: str
    identifier: str
    kind: RunKind = "validation"
    devices: int = 1
    """How many devices it leases at once; those that name a node are all told as 1."""
    turn: int = 0
    """Number of the turn in which it was taken; 0 while it waits."""

    @property
    def member(self) -> bytes:
        """The entry in the sorted set."""
        return queue_prefix(self.queue, devices=self.devices) + _SEPARATOR.join(
            (msgspec.json.encode(self.tenant), self.identifier.encode(), self.kind.encode())
        )

    @classmethod
    def of(cls, member: bytes | str) -> Self:
        """Return the run of an entry."""
        queue, devices, tenant, identifier, kind = binary(member).split(_SEPARATOR)
        return cls(
            queue=msgspec.json.decode(queue, type=str),
            tenant=msgspec.json.decode(tenant, type=str),
            identifier=identifier.decode(),
            kind=msgspec.convert(kind.decode(), RunKind),
            devices=int(devices),
        )


def queue_prefix(queue: str, *, devices: int | None = None) -> bytes:
    """Return how every entry of a queue begins, or every one of a size in it.

    JSON leaves no line break in a name.
    """
    size = b"" if devices is None else str(devices).encode() + _SEPARATOR
    return msgspec.json.encode(queue) + _SEPARATOR + size


def take_next(
    client: redis.Redis, queue: str, *, owner: str, most_devices: int
) -> WaitingRun | None:
    """Return the run whose turn it is, claimed for this owner.

    None when no run waits that so many devices can serve.

    Raises:
        StoreUnavailable: It is not known whether one was taken; its claim runs out by itself.
    """
    script = client.register_script(_TAKE)
    with reaching_the_store():
        taken = script(
            keys=[keys.waiting_runs(), keys.turns(queue), keys.turn_counter(), keys.leasing_runs()],
            args=[
                queue_prefix(queue),
                owner,
                keys.VALIDATION_OWNER_LIFETIME_S,
                msgspec.json.encode(_OWNER_KEYS),
                keys.TURNS_LIFETIME_S,
                most_devices,
            ],
        )
    if not taken:
        return None
    member, turn = taken
    return msgspec.structs.replace(WaitingRun.of(member), turn=int(turn))


def is_waiting(client: redis.Redis, run: WaitingRun) -> bool:
    """Tell whether nobody has taken it yet."""
    with reaching_the_store():
        return client.zscore(keys.waiting_runs(), run.member) is not None


def unserved_for_s(client: redis.Redis, identifier: str) -> int:
    """Return for how many seconds nobody could serve a run, as was seen; the first look sees 0.

    The store's own clock counts. A time in which nobody looked counts for nothing: after all was
    down, nodes get the time to come back.
    """
    script = client.register_script(_UNSERVED)
    with reaching_the_store():
        age = script(keys=[keys.unserved_since(identifier)], args=[keys.UNSERVED_LIFETIME_S])
    return int(str(age))


def is_served(client: redis.Redis, identifier: str) -> None:
    """Note that a live node can serve a run, or that nobody has to any more."""
    with reaching_the_store():
        client.delete(keys.unserved_since(identifier))


def withdraw(client: redis.Redis, run: WaitingRun) -> bool:
    """Take a run from those that wait; tell whether nobody else did so before.

    Whoever withdrew it must end it: what neither waits nor is claimed counts as lost.
    """
    with reaching_the_store():
        return bool(client.zrem(keys.waiting_runs(), run.member))


def count_waiting(client: redis.Redis, queue: str, *, devices: int) -> int:
    """Return how many runs of a size wait in a queue."""
    prefix = queue_prefix(queue, devices=devices)
    with reaching_the_store():
        return int(
            str(client.zlexcount(keys.waiting_runs(), b"[" + prefix, b"[" + prefix + _PAST_ALL))
        )


def has_devices(client: redis.Redis, run: WaitingRun) -> None:
    """Note that a run that was taken no longer waits for devices."""
    with reaching_the_store():
        client.zrem(keys.leasing_runs(), run.member)


def is_overtaking(client: redis.Redis, run: WaitingRun, *, owner: str, node_queue: str) -> bool:
    """Tell whether a run that was taken earlier by this owner still waits for such devices.

    Runs of the node's own queue may want any device of it, so they keep the order with all others.
    An entry without a live claim of this owner is what a killed process left: it holds up nobody.
    """
    with reaching_the_store():
        turn = client.zscore(keys.leasing_runs(), run.member)
        if turn is None:
            return False
        earlier: list[bytes | str] = client.zrangebyscore(  # type: ignore[assignment]  # no scores
            keys.leasing_runs(), "-inf", f"({turn}"
        )
    queues = {run.queue, node_queue}
    rivals = [
        other
        for other in map(WaitingRun.of, earlier)
        if other.queue in queues or run.queue == node_queue
    ]
    return any(_owner(client, rival) == owner for rival in rivals)


def _owner(client: redis.Redis, run: WaitingRun) -> str | None:
    with reaching_the_store():
        found = client.get(_OWNER_KEYS[run.kind].replace("{id}", run.identifier))
    return None if found is None else text(found)
