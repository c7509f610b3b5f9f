"""The process that serves a node's queues; it forks one process for each job, and has no threads.

A fork takes over the locks that other threads hold at that moment, and nobody ever frees them: a
job stood still for good when a webhook was being sent while it was forked. So the node's heartbeat
and its webhooks live in the process that started this one.
"""

import importlib
import os
import signal
import threading
from multiprocessing import get_context
from multiprocessing.context import ForkProcess

import redis
from rq.serializers import JSONSerializer
from rq.worker import RoundRobinWorker

from api_schemas.worker import WorkerNode
from service.queue import ticket_queues
from workers.lifetime import end_with_the_worker
from workers.settings import WorkerSettings

_PREDICTIONS = "service.tuning.performance"
"""Loaded once here, so that not every job compiles it anew after its fork."""


class NodeWorker(RoundRobinWorker):
    """An RQ worker that serves its queues in turn, and asks its job to end with it."""

    def handle_warm_shutdown_request(self) -> None:
        """Let the running validation go back to the queue instead of waiting for its end."""
        if self.horse_pid:
            self.kill_horse(sig=signal.SIGTERM)


def start_serving(settings: WorkerSettings, node: WorkerNode) -> ForkProcess:
    """Return the process that works off the node's queues; it ends with this one.

    Raises:
        RuntimeError: This process has threads already, whose locks the other one would inherit.
    """
    if threading.active_count() > 1:
        raise RuntimeError("the queues' process must be forked before any thread starts")
    process = get_context("fork").Process(target=_serve, args=(settings, node), name="queues")
    process.start()
    return process


def _serve(settings: WorkerSettings, node: WorkerNode) -> None:
    os.setsid()  # Ctrl-C reaches our parent, which ends us
    end_with_the_worker()
    importlib.import_module(_PREDICTIONS)
    with redis.Redis.from_url(settings.redis_url) as waiting:
        NodeWorker(ticket_queues(node), connection=waiting, serializer=JSONSerializer).work(
            logging_level="WARNING", with_scheduler=False
        )
