"""`python -m workers`: register this node, sweep what was left behind, and work off its queues."""

import importlib
import signal
import sys
import threading
from datetime import UTC, datetime
from functools import partial

import msgspec
import redis

from api_schemas.worker import WorkerNode
from service.log import configure_logging, get_logger
from service.queue import FUNCTION
from service.settings import InvalidSettings
from service.store import workers as registry
from service.store.client import StoreUnavailable, ping, store_time
from service.store.webhooks import WebhookStore
from service.sweep import sweep
from service.webhooks.dispatcher import Dispatcher
from service.webhooks.sending import reach_of
from workers.inventory import describe_node, find_devices
from workers.serving import start_serving
from workers.settings import WorkerSettings, read_worker_settings
from workers.sweep import end_leftovers, is_of_a_live_run

HEARTBEAT_S = 10.0
_STORE_WAIT_S = 60.0
_STORE_POLL_S = 0.2
_log = get_logger(__name__)


def main() -> None:
    """Work until told to stop.

    What the queue names is loaded at once: a worker that cannot run its jobs must not take any.
    """
    importlib.import_module(FUNCTION.rpartition(".")[0])
    try:
        settings = read_worker_settings()
    except (InvalidSettings, ValueError) as error:
        sys.stderr.write(f"worker: {error}\n")
        sys.exit(2)
    configure_logging(level=settings.log_level, output=settings.log_format)  # type: ignore[arg-type]
    client = redis.Redis.from_url(settings.redis_url)
    stop = threading.Event()
    if not _store_answers(client, stop):
        sys.stderr.write("worker: the store cannot be reached; set SETPOINT_REDIS_URL\n")
        sys.exit(4)
    sys.exit(_work(client, settings, stop))


def _work(client: redis.Redis, settings: WorkerSettings, stop: threading.Event) -> int:
    """Keep the node registered, and tell of ended runs, while its process serves the queues."""
    node = describe_node(settings)
    _say_what_it_has(node, settings)
    end_leftovers(client, registry.store_identity(client), settings.node)
    serving = start_serving(settings, node)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: serving.terminate())
    heartbeat = threading.Thread(target=_beat, args=(client, settings, node, stop), daemon=True)
    heartbeat.start()
    try:
        with _dispatcher(client, settings):
            serving.join()
    finally:
        stop.set()
        heartbeat.join(timeout=HEARTBEAT_S)
        _leave(client, node)
    code = serving.exitcode or 0
    return 128 - code if code < 0 else code


def _say_what_it_has(node: WorkerNode, settings: WorkerSettings) -> None:
    _log.info(
        "node_described",
        node=node.node,
        devices=[device.name for device in node.devices],
        vllm=[f"{found.version} {found.path}" for found in node.environments],
        queues=node.queues,
    )
    if not node.environments:
        _log.warning("no_vllm_found", looked_at=[str(path) for path in settings.vllm_envs])


def _dispatcher(client: redis.Redis, settings: WorkerSettings) -> Dispatcher:
    """Return what tells of ended runs, where this node has the secrets for it."""
    return Dispatcher(
        WebhookStore(client, retention=settings.retention),
        secrets_dir=settings.secrets_dir,
        reach=reach_of(networks=settings.webhook_networks, redirects=settings.webhook_redirects),
        now=partial(store_time, client),
    )


def _beat(
    client: redis.Redis, settings: WorkerSettings, node: WorkerNode, stop: threading.Event
) -> None:
    """Say regularly that the node lives, and sweep; whatever goes wrong, the next beat comes."""
    while True:
        try:
            now = datetime.now(UTC)
            is_ours = partial(is_of_a_live_run, client, registry.store_identity(client))
            seen = msgspec.structs.replace(
                node, heartbeat_at=now.isoformat(), devices=find_devices(is_ours)[0]
            )
            registry.register(client, seen)
            sweep(client, retention=settings.retention, now=now)
        except StoreUnavailable as error:
            _log.warning("heartbeat_failed", reason=str(error))
        except Exception:  # noqa: BLE001  # a node without a heartbeat is gone for all others
            _log.exception("heartbeat_broke")
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
