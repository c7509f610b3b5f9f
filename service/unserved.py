"""Ending runs that waited for a worker which is gone: nobody waits for ever who did not ask to."""

from collections.abc import Iterable
from datetime import datetime

import redis

from api_schemas.validation import Failure, ValidationPlan
from service.identifiers import timestamp
from service.log import get_logger
from service.queue import serves
from service.store.decoding import UnreadableRecord
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.store.waiting import WaitingRun, is_served, is_waiting, unserved_for_s, withdraw
from service.store.workers import live_nodes
from service.studies import plan_of

GRACE_S = 300
"""A worker that is restarted, or its machine, comes back within this."""
_log = get_logger(__name__)


def end_unserved(
    client: redis.Redis,
    validations: ValidationStore,
    studies: StudyStore,
    *,
    now: datetime,
    grace_s: float = GRACE_S,
) -> list[str]:
    """End queued runs whose plan does not wait, and that no live node could take for the grace.

    Those that nobody can read end as well. Doing it at several places at once ends each only once.
    Returns their ids.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    nodes, ended = live_nodes(client), []
    for run, plan in _waiting(client, validations, studies):
        if isinstance(plan, UnreadableRecord):
            store = studies if run.kind == "study" else validations
            if _is_forlorn(client, store, run.identifier, grace_s=grace_s):
                _end_unreadable(store, run, reason=str(plan), now=now)
                ended.append(run.identifier)
            continue
        if plan.when_no_worker == "wait" or any(serves(node, run) for node in nodes):
            is_served(client, run.identifier)
            continue
        seconds = unserved_for_s(client, run.identifier)
        if seconds >= grace_s and withdraw(client, run):
            _end(run, validations, studies, seconds=seconds, now=now)
            is_served(client, run.identifier)
            ended.append(run.identifier)
    return ended


def _waiting(
    client: redis.Redis, validations: ValidationStore, studies: StudyStore
) -> Iterable[tuple[WaitingRun, ValidationPlan | UnreadableRecord]]:
    """Yield what waits with its plan, and what cannot be read wherever it is."""
    for identifier in validations.unfinished():
        run = validations.waiting_run(identifier)
        try:
            validation = validations.find(identifier)
        except UnreadableRecord as error:
            yield run, error
            continue
        if validation is not None and is_waiting(client, run):
            yield run, validation.plan
    for identifier in studies.unfinished():
        run = studies.waiting_run(identifier)
        try:
            study = studies.find(identifier)
        except UnreadableRecord as error:
            yield run, error
            continue
        if study is not None and is_waiting(client, run):
            yield run, plan_of(study.request)


def _is_forlorn(
    client: redis.Redis,
    store: ValidationStore | StudyStore,
    identifier: str,
    *,
    grace_s: float,
) -> bool:
    """Tell whether nobody works on an unreadable run, and nobody could read it for the grace.

    While releases are mixed, one that can read it keeps it by noting that it is served.
    """
    if store.is_claimed(identifier):
        is_served(client, identifier)
        return False
    return unserved_for_s(client, identifier) >= grace_s


def _end_unreadable(
    store: ValidationStore | StudyStore, run: WaitingRun, *, reason: str, now: datetime
) -> None:
    failure = Failure(stage="lost", reason=f"its record cannot be read: {reason}", log_tail="")
    store.end_unreadable(run.identifier, failure=failure, finished_at=timestamp(now))
    _log.warning("run_unreadable", id=run.identifier, kind=run.kind, reason=reason)


def _end(
    run: WaitingRun,
    validations: ValidationStore,
    studies: StudyStore,
    *,
    seconds: int,
    now: datetime,
) -> None:
    devices = "a device" if run.devices == 1 else f"{run.devices} devices"
    reason = f"no live worker could take it from {run.queue} with {devices} for {seconds} s"
    failure = Failure(stage="no-worker", reason=reason, log_tail="")
    at = timestamp(now)
    if run.kind == "study":
        study = studies.find(run.identifier)
        if study is not None:
            studies.change(
                run.identifier,
                attempt=study.attempt,
                status="failed",
                stage="no-worker",
                progress=1.0,
                failure=failure,
                finished_at=at,
            )
    else:
        validation = validations.find(run.identifier)
        if validation is not None:
            validations.change(
                run.identifier,
                attempt=validation.attempt,
                to="failed",
                stage="no-worker",
                progress=1.0,
                failure=failure,
                verdict="inconclusive",
                finished_at=at,
            )
    _log.warning("run_unserved", id=run.identifier, kind=run.kind, queue=run.queue)
