"""Nodes that can prove a recommendation, as they registered themselves."""

import secrets

import msgspec
import redis

from api_schemas.worker import WorkerNode
from service.store import keys
from service.store.client import binary, reaching_the_store, text


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
    return [msgspec.json.decode(binary(record), type=WorkerNode) for record in records if record]
