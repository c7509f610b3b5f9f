"""One validation from its lease to its end, in a process of its own."""

import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import redis
from rq.timeouts import JobTimeoutException

from api_schemas.recommendation import Recommendation
from api_schemas.validation import Failure, Validation, ValidationMode
from api_schemas.worker import WorkerDevice, WorkerNode
from service.identifiers import timestamp
from service.log import get_logger
from service.model_lookup import make_resolver
from service.queue import (
    LEASE_WAIT_LIMIT_S,
    device_count,
    gpu_name,
    job_timeout_s,
    start_again,
)
from service.store.models import ModelStore
from service.store.recommendations import RecommendationStore
from service.store.validations import ValidationStore, is_finished
from service.store.waiting import WaitingRun
from service.telemetry import job_span
from workers.compare import compare
from workers.devices import InForeignUse, NotEnoughDevices, choose_devices
from workers.experiment import Experiment
from workers.inventory import describe_node, find_devices
from workers.knee import knee
from workers.learn import remember
from workers.lifetime import WorkerStopping, limited_to
from workers.modes import boot, quick, soak
from workers.points import judge, startup_holds, verdict_of
from workers.run import Cancelled, Failed, OutOfTime, Run, TakenOver
from workers.settings import WorkerSettings
from workers.subject import choose_subject, describe_environment

_LEASE_POLL_S = 0.2
_FOREIGN_WAIT_S = 30.0
_log = get_logger(__name__)

MODES: dict[ValidationMode, Callable[[Experiment], None]] = {
    "boot": boot,
    "quick": quick,
    "knee": knee,
    "compare": compare,
    "soak": soak,
}


def run_validation(client: redis.Redis, waiting: WaitingRun, settings: WorkerSettings) -> None:
    """Prove one recommendation; everything that is worth telling is in its record."""
    store = ValidationStore(client, retention=settings.retention)
    validation = store.find(waiting.identifier)
    if validation is None or is_finished(validation):
        _log.info("validation_skipped", id=waiting.identifier)
        store.drop_claim(waiting.identifier)
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
                _conduct(run, settings)
        except WorkerStopping:
            start_again(
                client, store, validation, now=datetime.now(UTC), reason="the worker was ended"
            )


def _conduct(run: Run, settings: WorkerSettings) -> None:
    """Take the run from its lease to its end, whatever happens."""
    folder = settings.work_dir / "validations" / run.validation.id
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _prove(run, settings, folder)
    except Cancelled:
        run.finish("cancelled")
    except TakenOver as error:
        _log.warning("validation_taken_over", reason=str(error))
    except (OutOfTime, JobTimeoutException):
        failure = Failure(
            stage="load", reason="the plan's minutes ended before a result", log_tail=""
        )
        run.finish("timed_out", verdict="inconclusive", failure=failure)
    except Failed as error:
        run.finish("failed", verdict="inconclusive", failure=error.failure)
    except Exception as error:  # noqa: BLE001  # the record must say so, whatever it was
        _log.exception("validation_broke", id=run.validation.id)
        failure = Failure(stage="load", reason=f"a fault of Setpoint: {error!r}", log_tail="")
        run.finish("failed", verdict="inconclusive", failure=failure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prove(run: Run, settings: WorkerSettings, folder: Path) -> None:
    started_at = timestamp(datetime.now(UTC))
    run.report("leasing", 0.02, to="leasing", started_at=started_at)
    recommendation = _recommendation(run)
    node = describe_node(settings)
    devices = _lease(run, node, recommendation, settings)
    run.start_clock()
    store = ValidationStore(run.client, retention=settings.retention)
    tenant = store.tenant_of(run.validation.id)
    try:
        subject = choose_subject(
            recommendation,
            run.validation.plan,
            node=node,
            devices=devices,
            resolve_model=make_resolver(ModelStore(run.client, tenant=tenant)),
            allow_code=settings.allow_code,
        )
    except LookupError as error:
        raise Failed("start", str(error)) from error
    run.note(*subject.notes)
    run.report("leasing", 0.05, environment=describe_environment(subject, node))
    experiment = Experiment(run, subject, folder)
    try:
        MODES[run.validation.mode](experiment)
        run.finish("succeeded", **_conclusion(experiment))
    finally:
        remember(run, subject, ValidationStore(run.client, retention=settings.retention))


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


def _recommendation(run: Run) -> Recommendation:
    stored = RecommendationStore(run.client, retention=None).find(run.validation.recommendation_id)
    if stored is None:
        raise Failed("lease", "the recommendation was removed")
    return msgspec.json.decode(stored.body, type=Recommendation)


def _lease(
    run: Run, node: WorkerNode, recommendation: Recommendation, settings: WorkerSettings
) -> list[WorkerDevice]:
    """Return devices that are ours; wait while others hold them.

    Raises:
        Failed: They did not become free in time, or the node can never give them.
    """
    count = device_count(recommendation.config)
    waited_s, foreign_s, pause = 0.0, 0.0, threading.Event()
    while waited_s < LEASE_WAIT_LIMIT_S:
        run.check()
        wanted = _wanted_devices(run.validation, node, recommendation)
        devices: list[WorkerDevice] = []
        try:
            devices = choose_devices(run.client, wanted, count=count)
            foreign_s = 0.0
        except NotEnoughDevices as error:
            # What an ended run used is in foreign use until the driver has cleaned up.
            foreign_s += _LEASE_POLL_S
            if foreign_s > _FOREIGN_WAIT_S or not isinstance(error, InForeignUse):
                raise Failed("lease", str(error)) from error
        if devices and not run.is_overtaking() and _take(run, devices, settings):
            return devices
        pause.wait(_LEASE_POLL_S)
        waited_s += _LEASE_POLL_S
        if node.driver is not None:
            node = msgspec.structs.replace(node, devices=find_devices()[0])
    raise Failed("lease", f"no free device within {LEASE_WAIT_LIMIT_S:.0f} s")


def _take(run: Run, devices: list[WorkerDevice], settings: WorkerSettings) -> bool:
    """Take the devices and one of the node's places for benchmarks."""
    for place in range(settings.benchmarks):
        names = [device.uuid for device in devices]
        if run.lease([*names, f"node:{settings.node}:{place}"]):
            return True
    return False


def _wanted_devices(
    validation: Validation, node: WorkerNode, recommendation: Recommendation
) -> list[WorkerDevice]:
    place = validation.plan.queue
    asked = recommendation.request.hardware.gpu
    if place is not None and place.gpu is not None:
        asked = place.gpu
    matching = [item for item in node.devices if gpu_name(item.name) == gpu_name(asked)]
    if not matching and place is not None and place.node is not None:
        return node.devices
    return matching
