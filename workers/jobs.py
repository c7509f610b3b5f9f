"""One validation from its lease to its end, in a process of its own."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import redis

from api_schemas.validation import Failure, ValidationMode
from api_schemas.worker import WorkerNode
from service.identifiers import timestamp
from service.log import get_logger
from service.queue import (
    job_timeout_s,
    start_again,
)
from service.store.validations import ValidationStore, is_finished
from service.store.waiting import WaitingRun
from service.telemetry import job_span
from workers.compare import compare
from workers.conduct import BadEnd, conduct
from workers.experiment import Experiment
from workers.knee import knee
from workers.learn import remember
from workers.lifetime import WorkerStopping, limited_to
from workers.modes import boot, quick, soak
from workers.points import judge, startup_holds, verdict_of
from workers.preparation import prepare
from workers.run import Run
from workers.settings import WorkerSettings
from workers.subject import describe_environment

_log = get_logger(__name__)

MODES: dict[ValidationMode, Callable[[Experiment], None]] = {
    "boot": boot,
    "quick": quick,
    "knee": knee,
    "compare": compare,
    "soak": soak,
}


def run_validation(
    client: redis.Redis, waiting: WaitingRun, settings: WorkerSettings, node: WorkerNode
) -> None:
    """Prove one recommendation; everything that is worth telling is in its record."""
    store = ValidationStore(client, retention=settings.retention)
    validation = store.find(waiting.identifier)
    if validation is None or is_finished(validation):
        _log.info("validation_skipped", id=waiting.identifier)
        if validation is not None:
            store.drop_claim(validation.id, attempt=validation.attempt)
        return
    with (
        job_span(
            "validation",
            traceparent=validation.traceparent,
            attributes={"setpoint.validation.id": validation.id, "setpoint.mode": validation.mode},
            endpoint=settings.otlp_endpoint,
        ),
        Run(client, store, validation, waiting=waiting, node=settings.node) as run,
    ):
        try:
            with limited_to(seconds=job_timeout_s(validation.plan)):
                folder = settings.work_dir / "validations" / f"{validation.id}-{validation.attempt}"
                conduct(
                    run,
                    folder,
                    work=lambda: _prove(run, settings, node, folder),
                    end=partial(_end, run),
                )
        except WorkerStopping:
            start_again(
                client, store, validation, now=datetime.now(UTC), reason="the worker was ended"
            )


def _end(run: Run, status: BadEnd, failure: Failure | None) -> None:
    if status == "cancelled":
        run.finish(status)
        return
    if status == "timed_out":
        reason = "the plan's minutes ended before a result"
        failure = Failure(stage="load", reason=reason, log_tail="")
    run.finish(status, verdict="inconclusive", failure=failure)


def _prove(run: Run, settings: WorkerSettings, node: WorkerNode, folder: Path) -> None:
    """Take the run from its lease to its result."""
    started_at = timestamp(datetime.now(UTC))
    run.report("leasing", 0.02, to="leasing", started_at=started_at)
    store = ValidationStore(run.client, retention=settings.retention)
    subject = prepare(run, settings, node, tenant=store.tenant_of(run.validation.id))
    run.report("leasing", 0.05, environment=describe_environment(subject, node))
    experiment = Experiment(run, subject, folder)
    try:
        MODES[run.validation.mode](experiment)
        run.finish("succeeded", **_conclusion(experiment))
    finally:
        remember(run, subject, store)


def _conclusion(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of the record that sum up what was found."""
    subject, findings = experiment.subject, experiment.findings
    cost = subject.recommendation.cost
    outcomes = judge(
        subject.slo,
        findings.judged,
        replicas=subject.replicas,
        price_per_hour=cost.per_hour if cost else None,
    )
    holds = (
        startup_holds(findings.startup, findings.startup_prediction) if findings.startup else None
    )
    return {
        "slo": outcomes,
        "knee": findings.knee,
        "comparison": findings.comparison,
        "suggested_config": findings.suggested_config,
        "verdict": verdict_of(outcomes, startup_holds=holds, as_asked=subject.as_asked),
    }
