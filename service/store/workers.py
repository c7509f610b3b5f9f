"""Nodes that can prove a recommendation, as they registered themselves."""

import secrets

import msgspec
import redis

from api_schemas.worker import WorkerNode
from service.log import get_logger
from service.store import keys
from service.store.client import binary, reaching_the_store, text
from service.store.decoding import UnreadableRecord, decode_record

_log = get_logger(__name__)


def register(client: redis.Redis, node: WorkerNode) -> None:
    """Keep the node's record until its next heartbeat is overdue.

    Raises:
        StoreUnavailable: The store did not acknowledge it.
    """
    with reaching_the_store(), client.pipeline() as pipe:
        pipe.set(keys.worker(node.node), msgspec.json.encode(node), ex=keys.WORKER_LIFETIME_S)
        pipe.sadd(keys.workers(), node.node)
        pipe.execute()


def store_identity(client: redis.Redis) -> str:
    """Return the store's own name: several stores may have workers on one host.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    key = keys.store_identity()
    with reaching_the_store():
        client.set(key, secrets.token_hex(8), nx=True)
        return text(client.get(key))


def forget(client: redis.Redis, node: str) -> None:
    """Take a node off the list, when it leaves on purpose.

    Raises:
        StoreUnavailable: The store did not acknowledge it.
    """
    with reaching_the_store(), client.pipeline() as pipe:
        pipe.delete(keys.worker(node))
        pipe.srem(keys.workers(), node)
        pipe.execute()


def live_nodes(client: redis.Redis) -> list[WorkerNode]:
    """Return the nodes with a live heartbeat, by name.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    with reaching_the_store():
        names = sorted(text(name) for name in client.smembers(keys.workers()))
        records = client.mget([keys.worker(name) for name in names]) if names else []
    found = (_readable(name, record) for name, record in zip(names, records, strict=False))
    return [node for node in found if node is not None]


def _readable(name: str, record: bytes | str | None) -> WorkerNode | None:
    """Return a node's record, or None when it is gone or another release's beyond reading."""
    if record is None:
        return None
    try:
        return decode_record(binary(record), WorkerNode)
    except UnreadableRecord as error:
        _log.warning("record_unreadable", node=name, reason=str(error))
        return None
