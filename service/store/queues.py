"""Queues as they stand: how many runs wait in each, and since when."""

import uuid
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import redis

from api_schemas.worker import QueueState
from service.identifiers import is_identifier
from service.store import keys
from service.store.client import reaching_the_store
from service.store.waiting import WaitingRun

_MOST_READ = 10_000
"""Waiting runs that are looked at; more than that is shown as that many."""


def queue_states(client: redis.Redis, *, listed: list[str], now: datetime) -> list[QueueState]:
    """Return the listed queues and all others in which runs wait, by name.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    with reaching_the_store():
        found: Any = client.zrange(keys.waiting_runs(), 0, _MOST_READ - 1)
    waiting: dict[str, list[WaitingRun]] = defaultdict(list)
    for run in map(WaitingRun.of, found):
        waiting[run.queue].append(run)
    names = sorted({*listed, *waiting})
    return [
        QueueState(
            queue=name,
            waiting=len(waiting[name]),
            oldest_waiting_s=max((_age_s(run, now=now) for run in waiting[name]), default=None),
        )
        for name in names
    ]


def _age_s(run: WaitingRun, *, now: datetime) -> float:
    """Return the time since a run was asked for, as its id tells it."""
    if not is_identifier(run.identifier):
        return 0.0
    made_at = datetime.fromtimestamp((uuid.UUID(run.identifier).int >> 80) / 1000, tz=UTC)
    return max(0.0, round((now - made_at).total_seconds(), 3))
