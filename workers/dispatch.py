"""What the queue names: `run_next`, which takes the run whose turn it is and works on it.

A ticket in the queue stands for no run of its own: while it waited, the turn may have gone to
another tenant's run, and the run of this ticket comes with another ticket.
"""

from collections.abc import Callable

import redis

from service.log import configure_logging, get_logger
from service.store.waiting import RunKind, WaitingRun, has_devices, take_next
from workers.jobs import run_validation
from workers.lifetime import end_with_the_worker
from workers.settings import WorkerSettings, read_worker_settings
from workers.study import run_study

_STORE_TIMEOUT_S = 10
_log = get_logger(__name__)
_CONDUCTORS: dict[RunKind, Callable[[redis.Redis, WaitingRun, WorkerSettings], None]] = {
    "validation": run_validation,
    "study": run_study,
}


def run_next(queue: str) -> None:
    """Work on the run of this queue whose turn it is; everything worth telling is in its record."""
    settings = read_worker_settings()
    configure_logging(level=settings.log_level, output=settings.log_format)  # type: ignore[arg-type]
    end_with_the_worker()
    client = redis.Redis.from_url(
        settings.redis_url, socket_timeout=_STORE_TIMEOUT_S, socket_connect_timeout=_STORE_TIMEOUT_S
    )
    with client:
        waiting = take_next(client, queue, owner=settings.node)
        if waiting is None:
            _log.info("nothing_to_take", queue=queue)
            return
        _log.info(
            "run_taken",
            kind=waiting.kind,
            id=waiting.identifier,
            tenant=waiting.tenant,
            turn=waiting.turn,
        )
        try:
            _CONDUCTORS[waiting.kind](client, waiting, settings)
        finally:
            has_devices(client, waiting)
