"""One study from its lease to its end, in a process of its own.

A study works like a validation that measures one configuration after the other; its record is the
study's own.
"""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import redis

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import EstimateRequest
from api_schemas.study import Study, StudyStatus, StudyTrial
from api_schemas.validation import Failure, LoadPoint
from api_schemas.worker import WorkerNode
from service.identifiers import timestamp
from service.log import get_logger
from service.queue import timeout_s
from service.store.studies import StudyStore, is_ended
from service.store.validations import Change
from service.store.waiting import WaitingRun
from service.studies import go_on
from service.telemetry import job_span
from service.tuning.engine.defaults import effective_config
from service.tuning.errors import TuningError
from service.tuning.estimate import estimate
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.studies.outcome import (
    best_trial,
    figures_of,
    pareto_front,
    violations_of,
)
from service.tuning.studies.prior import Prior, prior_of
from workers.conduct import conduct
from workers.experiment import Experiment
from workers.learn import keep_points
from workers.lifetime import WorkerStopping, limited_to
from workers.preparation import prepare
from workers.run import Failed, Run, TakenOver
from workers.settings import WorkerSettings
from workers.study_search import Candidate, StudySearch
from workers.study_track import StudyTrack, as_validation
from workers.subject import Subject, describe_environment

_log = get_logger(__name__)
_LEAST_SECONDS = 20.0


def run_study(
    client: redis.Redis, waiting: WaitingRun, settings: WorkerSettings, node: WorkerNode
) -> None:
    """Search for the best configuration; everything that is worth telling is in its record."""
    store = StudyStore(client)
    study = store.find(waiting.identifier)
    if study is None or is_ended(study):
        _log.info("study_skipped", id=waiting.identifier)
        if study is not None:
            store.drop_claim(study.id, attempt=study.attempt)
        return
    track = StudyTrack(store)
    with (
        job_span(
            "study",
            traceparent=study.traceparent,
            attributes={"setpoint.study.id": study.id},
            endpoint=settings.otlp_endpoint,
        ),
        Run(client, track, as_validation(study), waiting=waiting, node=settings.node) as run,
    ):
        try:
            with limited_to(seconds=timeout_s(max_minutes=study.request.max_minutes)):
                folder = settings.work_dir / "studies" / f"{study.id}-{study.attempt}"
                task = _Work(run=run, track=track, store=store, study=study)
                conduct(
                    run,
                    folder,
                    work=lambda: _search(task, settings, node, folder),
                    end=partial(_finish, task),
                )
        except WorkerStopping:
            go_on(client, store, study, now=datetime.now(UTC))


class _Work(msgspec.Struct, kw_only=True):
    """A study while it is worked on."""

    run: Run
    track: StudyTrack
    store: StudyStore
    study: Study

    def write(self, **fields: Any) -> None:  # noqa: ANN401  # fields of the record
        """Write to the record.

        Raises:
            TakenOver: It went to another process, or is finished.
        """
        outcome = self.store.change(self.study.id, attempt=self.study.attempt, **fields)
        if outcome is not Change.DONE:
            raise TakenOver(f"{self.study.id}: {outcome.value}")


def _search(work: _Work, settings: WorkerSettings, node: WorkerNode, folder: Path) -> None:
    """Take the study from its lease to its end."""
    run, study = work.run, work.study
    started_at = study.started_at or timestamp(datetime.now(UTC))
    work.write(status="running", stage="leasing", started_at=started_at)
    tenant = work.store.tenant_of(study.id)
    subject = prepare(run, settings, node, tenant=tenant, space=study.request.space)
    recommended = subject.recommendation.config
    work.write(environment=describe_environment(subject, node), notes=run.notes)
    search = StudySearch(
        study.request,
        recommended=recommended,
        effective=_defaults(subject, recommended, tuple(study.request.space)),
        slo=subject.slo,
        predict=lambda config: _prior(subject, config),
        trials=[trial for trial in study.trials if trial.state != "running"],
    )
    experiment = Experiment(run, subject, folder)
    while (candidate := search.ask()) is not None:
        run.check()
        _try(work, search, experiment, candidate)
    _finish(work, "succeeded")


def _try(work: _Work, search: StudySearch, experiment: Experiment, candidate: Candidate) -> None:
    """Measure one candidate, or note why not; its record is written before and after."""
    trial = StudyTrial(
        number=candidate.number,
        origin=candidate.origin,
        state="pruned" if candidate.skip else "running",
        reason=candidate.skip,
        parameters=candidate.parameters,
        config=candidate.config,
        predicted=candidate.predicted,
    )
    progress = round(search.measured / work.study.request.max_trials, 3)
    work.write(trial=trial, stage=f"trial {trial.number}", progress=min(progress, 1.0))
    if not candidate.skip:
        trial = _measured(work, experiment, trial)
    search.tell(trial)
    objectives = work.study.request.objectives
    work.write(
        trial=trial,
        baseline=next((t.number for t in search.trials if t.origin == "baseline"), None),
        best=best_trial(search.trials, objectives),
        pareto=pareto_front(search.trials, objectives),
    )


def _measured(work: _Work, experiment: Experiment, trial: StudyTrial) -> StudyTrial:
    """Return the trial with what came of it; what fails keeps its reason."""
    run, subject = work.run, experiment.subject
    work.track.points.clear()
    before = run.remaining_s
    try:
        point = _load(work, experiment, trial.config)
    except Failed as error:
        failure = error.failure
        return msgspec.structs.replace(
            trial, state="failed", reason=f"{failure.stage}: {failure.reason}"
        )
    keep_points(
        run.client,
        work.track.points,
        subject=subject,
        identifier=work.study.id,
        tenant=work.store.tenant_of(work.study.id),
    )
    figures = figures_of(point)
    missed = violations_of(figures, subject.slo)
    _log.info("trial_measured", id=work.study.id, number=trial.number, meets=not missed)
    return msgspec.structs.replace(
        trial,
        state="complete",
        measured=figures,
        meets=not missed,
        violations=missed,
        load_point=point,
        seconds=round(before - run.remaining_s, 1),
    )


def _load(work: _Work, experiment: Experiment, config: EngineConfig) -> LoadPoint:
    """Return what came of the load under one configuration, in a server of its own."""
    planned = experiment.subject.predict(config)
    if planned is None:
        raise Failed("start", "this configuration cannot be planned")
    seconds = min(work.study.request.trial_minutes * 60, work.run.remaining_s)
    with experiment.server(config, planned=planned, progress=0.0) as session:
        found = experiment.measure(
            session,
            experiment.arrivals,
            label="trial",
            seconds=max(seconds, _LEAST_SECONDS),
            progress=0.5,
        )
    return found.point


def _finish(work: _Work, status: StudyStatus, failure: Failure | None = None) -> None:
    fields = {} if failure is None else {"failure": failure}
    try:
        work.write(
            status=status,
            stage=status,
            progress=1.0,
            notes=work.run.notes,
            finished_at=timestamp(datetime.now(UTC)),
            **fields,
        )
    except TakenOver as error:
        _log.warning("study_taken_over", reason=str(error))


def _prior(subject: Subject, config: EngineConfig) -> Prior | None:
    """Return what Setpoint expects of a configuration; None where it cannot say."""
    request = EstimateRequest(
        model=subject.model,
        hardware=subject.hardware,
        engine=Engine(version=subject.version.text, config=config),
        workload=subject.workload,
        slo=subject.slo,
    )
    try:
        return prior_of(estimate(request, resolve_model=subject.resolve_model))
    except TuningError:
        return None


def _defaults(subject: Subject, config: EngineConfig, searched: tuple[str, ...]) -> EngineConfig:
    """Return what vLLM takes by itself for the settings that are searched."""
    kept = {k: v for k, v in msgspec.to_builtins(config).items() if k not in searched}
    left = msgspec.convert(kept, EngineConfig)
    try:
        node, _ = resolve_hardware(subject.hardware)
        spec = subject.resolve_model(subject.model)
        return effective_config(left, spec=spec, node=node, version=subject.version)
    except TuningError:
        return left
