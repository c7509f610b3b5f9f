"""Starting studies, and giving lost ones back to the queue."""

from datetime import datetime

import redis

from api_schemas.study import Study, StudyRequest
from api_schemas.validation import Failure, ValidationPlan
from service.identifiers import timestamp
from service.queue import add_ticket, heal_runs, queue_of
from service.store.studies import StudyStore
from service.store.validations import Change
from service.telemetry import current_traceparent

MAX_ATTEMPTS = 5
"""Starts of a study whose process was lost; each goes on where the last one ended."""


def plan_of(request: StudyRequest) -> ValidationPlan:
    """Return a study's place and minutes as the plan of a validation."""
    return ValidationPlan(
        mode="quick",
        max_minutes=min(request.max_minutes, 24 * 60),
        queue=request.queue,
        model_path=request.model_path,
        webhook=request.webhook,
        when_no_worker=request.when_no_worker,
    )


def start_study(
    client: redis.Redis,
    store: StudyStore,
    request: StudyRequest,
    *,
    identifier: str,
    gpu: str,
    devices: int,
    at: datetime,
) -> Study:
    """Store a study, then hand it to the workers; a crash in between is healed by them.

    One that an earlier try of the same request made is returned as it is.

    Raises:
        StoreUnavailable: It is not known to be stored.
    """
    made = store.find(identifier)
    if made is not None:
        return made
    study = Study(
        id=identifier,
        created_at=timestamp(at),
        request=request,
        status="queued",
        stage="queued",
        progress=0.0,
        queue=queue_of(plan_of(request), gpu=gpu),
        traceparent=current_traceparent(),
    )
    store.create(study, devices=devices)
    enqueue_study(client, study, devices=devices)
    return study


def enqueue_study(client: redis.Redis, study: Study, *, devices: int) -> None:
    """Hand a stored study to the workers; doing it twice is the same as once.

    Raises:
        StoreUnavailable: The store did not acknowledge it.
    """
    name = f"study-{study.id}-{study.attempt}"
    add_ticket(client, study.queue, devices=devices, identifier=name)


def heal_studies(client: redis.Redis, store: StudyStore, *, now: datetime) -> list[str]:
    """Give studies whose job or process was lost back to the queue; return their ids.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    return heal_runs(client, store, go_on=lambda lost: go_on(client, store, lost, now=now))


def go_on(client: redis.Redis, store: StudyStore, study: Study, *, now: datetime) -> None:
    """Queue a study whose process was lost once more, or end it as cancelled or failed."""
    if store.cancel_requested(study.id):
        end_study(store, study, now=now)
        return
    if study.attempt >= MAX_ATTEMPTS:
        failure = Failure(stage="lost", reason="its process was lost too often", log_tail="")
        store.change(
            study.id,
            attempt=study.attempt,
            status="failed",
            stage="lost",
            progress=1.0,
            failure=failure,
            finished_at=timestamp(now),
        )
        return
    moved = store.change(
        study.id,
        attempt=study.attempt,
        next_attempt=study.attempt + 1,
        status="queued",
        stage="queued",
        notes=[*study.notes, "Its process was lost; it went on where it was."],
    )
    fresh = store.find(study.id) if moved is Change.DONE else None
    if fresh is not None:
        enqueue_study(client, fresh, devices=store.waiting_run(fresh.id).devices)


def end_study(store: StudyStore, study: Study, *, now: datetime) -> None:
    """End a study that nobody works on, because somebody asked to."""
    store.change(
        study.id,
        attempt=study.attempt,
        status="cancelled",
        stage="cancelled",
        progress=1.0,
        finished_at=timestamp(now),
    )
