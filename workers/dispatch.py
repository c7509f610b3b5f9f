"""What the queue names: `run_next`, which takes the run whose turn it is and works on it.

A ticket in the queue stands for no run of its own: while it waited, the turn may have gone to
another tenant's run, and the run of this ticket comes with another ticket. It only says of which
size a run was when it was queued, so that no node draws one for what it can never serve.
"""

import contextlib
from collections.abc import Callable

import redis

from api_schemas.worker import WorkerNode
from service.log import configure_logging, get_logger
from service.queue import add_missing_tickets, most_devices
from service.store.client import StoreUnavailable
from service.store.waiting import RunKind, WaitingRun, has_devices, take_next
from workers.inventory import describe_node
from workers.jobs import run_validation
from workers.lifetime import end_with_the_worker, requeue_when_told
from workers.settings import WorkerSettings, read_worker_settings
from workers.study import run_study

_STORE_TIMEOUT_S = 10
_log = get_logger(__name__)
_Conductor = Callable[[redis.Redis, WaitingRun, WorkerSettings, WorkerNode], None]
_CONDUCTORS: dict[RunKind, _Conductor] = {
    "validation": run_validation,
    "study": run_study,
}


def run_next(queue: str, devices: int = 1) -> None:
    """Work on the run of this queue whose turn it is; everything worth telling is in its record.

    Args:
        queue: Where the runs wait.
        devices: What size the ticket is for; the run may be of any size that this node can serve.
    """
    settings = read_worker_settings()
    configure_logging(level=settings.log_level, output=settings.log_format)  # type: ignore[arg-type]
    end_with_the_worker()
    requeue_when_told()
    client = redis.Redis.from_url(
        settings.redis_url, socket_timeout=_STORE_TIMEOUT_S, socket_connect_timeout=_STORE_TIMEOUT_S
    )
    with client:
        node = describe_node(settings)
        most = most_devices(node, queue)
        waiting = take_next(client, queue, owner=node.node, most_devices=most)
        if waiting is None:
            _log.info("nothing_to_take", queue=queue)
            return
        if waiting.devices != devices:
            # A run of the ticket's size may wait still; the next heartbeat is the second chance.
            with contextlib.suppress(StoreUnavailable):
                add_missing_tickets(client, [(queue, devices)])
        _log.info(
            "run_taken",
            kind=waiting.kind,
            id=waiting.identifier,
            tenant=waiting.tenant,
            turn=waiting.turn,
        )
        try:
            _CONDUCTORS[waiting.kind](client, waiting, settings, node)
        finally:
            has_devices(client, waiting)
