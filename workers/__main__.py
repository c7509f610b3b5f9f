"""`python -m workers`: register this node and work off its queues."""

import sys
import threading
from datetime import UTC, datetime

import msgspec
import redis
from rq import Worker
from rq.serializers import JSONSerializer

from api_schemas.worker import WorkerNode
from service.log import configure_logging, get_logger
from service.settings import InvalidSettings
from service.store import workers as registry
from service.store.client import StoreUnavailable, ping
from service.tuning.provenance import setpoint_version
from workers.inventory import find_devices, find_environments
from workers.settings import WorkerSettings, read_worker_settings

HEARTBEAT_S = 10.0
_STORE_WAIT_S = 60.0
_STORE_POLL_S = 0.2
_log = get_logger(__name__)


def main() -> None:
    """Work until told to stop."""
    configure_logging()
    try:
        settings = read_worker_settings()
    except (InvalidSettings, ValueError) as error:
        sys.stderr.write(f"worker: {error}\n")
        sys.exit(2)
    client = redis.Redis.from_url(settings.redis_url)
    stop = threading.Event()
    if not _store_answers(client, stop):
        sys.stderr.write("worker: the store cannot be reached; set SETPOINT_REDIS_URL\n")
        sys.exit(4)
    node = describe_node(settings)
    heartbeat = threading.Thread(target=_beat, args=(client, node, stop), daemon=True)
    heartbeat.start()
    try:
        Worker(node.queues, connection=client, serializer=JSONSerializer).work(
            logging_level="WARNING", with_scheduler=True
        )
    finally:
        stop.set()
        heartbeat.join(timeout=HEARTBEAT_S)
        _leave(client, node)


def describe_node(settings: WorkerSettings) -> WorkerNode:
    """Return what this node is and has."""
    devices, driver = find_devices()
    now = datetime.now(UTC).isoformat()
    names = sorted({device.name for device in devices})
    return WorkerNode(
        node=settings.node,
        started_at=now,
        heartbeat_at=now,
        setpoint_version=setpoint_version(),
        driver=driver,
        devices=devices,
        environments=find_environments(settings.vllm_envs),
        queues=[node_queue(settings.node), *(gpu_queue(name) for name in names)],
    )


def node_queue(node: str) -> str:
    """Return the queue that only this node works off."""
    return f"validate.node.{node}"


def gpu_queue(gpu: str) -> str:
    """Return the queue that every node with this GPU works off."""
    return f"validate.gpu.{gpu.replace(' ', '-')}"


def _beat(client: redis.Redis, node: WorkerNode, stop: threading.Event) -> None:
    """Say regularly that the node lives; a store that is away is tried again."""
    while True:
        try:
            now = datetime.now(UTC).isoformat()
            registry.register(client, msgspec.structs.replace(node, heartbeat_at=now))
        except StoreUnavailable as error:
            _log.warning("heartbeat_failed", reason=str(error))
        if stop.wait(HEARTBEAT_S):
            return


def _leave(client: redis.Redis, node: WorkerNode) -> None:
    try:
        registry.forget(client, node.node)
    except StoreUnavailable as error:
        _log.warning("sign_off_failed", reason=str(error))


def _store_answers(client: redis.Redis, stop: threading.Event) -> bool:
    """Wait for the store, which may start at the same time as this worker."""
    for _ in range(int(_STORE_WAIT_S / _STORE_POLL_S)):
        try:
            ping(client)
        except StoreUnavailable:
            stop.wait(_STORE_POLL_S)
        else:
            return True
    return False


if __name__ == "__main__":
    main()
