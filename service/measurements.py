"""What happens when measurements arrive: stored once, and what they teach is fitted at once.

Answers only read what was fitted. The API and the workers share these functions.
"""

import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec

from api_schemas.measurement import Calibration, Measurement, MeasurementRequest
from api_schemas.validation import LoadPoint
from service.calibrations import Clock, gpu_of, refit
from service.identifiers import ENTROPY_BYTES, time_ordered_id, timestamp
from service.prediction_errors import Judge
from service.store.measurements import MeasurementStore
from service.tuning.calibrations.points import key_of, situation_of
from service.tuning.measurements.accept import Accepted, accept
from service.tuning.measurements.load_points import Proven, accepted_load_point
from service.tuning.situation import ModelResolver


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a posted measurement or report."""

    measurements: list[Measurement]
    calibrations: list[Calibration]
    is_new: bool
    """Whether anything was stored that was not there before."""


def add_measurements(
    store: MeasurementStore,
    request: MeasurementRequest,
    *,
    resolve_model: ModelResolver,
    now: Clock,
) -> Added:
    """Store what a request holds, and fit the configurations that it belongs to.

    Raises:
        TuningError: It cannot be believed, or names something unknown.
        StoreUnavailable: It is not known to be stored.
    """
    made = [
        msgspec.structs.replace(
            _measurement(item, resolve_model=resolve_model, at=now()),
            measured_at=request.measured_at,
            labels=dict(request.labels),
        )
        for item in accept(request)
    ]
    return _add(store, made, resolve_model=resolve_model, now=now)


def add_load_points(
    store: MeasurementStore,
    points: Sequence[LoadPoint],
    *,
    proven: Proven,
    resolve_model: ModelResolver,
    now: Clock,
) -> Added:
    """Store the load points of a validation, and fit the configurations that they belong to.

    Points with failed requests or contradicting figures are left out.

    Raises:
        TuningError: What was measured names something unknown.
        StoreUnavailable: They are not known to be stored.
    """
    found = (accepted_load_point(point, proven) for point in points)
    made = [
        msgspec.structs.replace(
            _measurement(item, resolve_model=resolve_model, at=now()), measured_at=timestamp(now())
        )
        for item in found
        if item is not None
    ]
    return _add(store, made, resolve_model=resolve_model, now=now)


def _add(
    store: MeasurementStore,
    made: Sequence[Measurement],
    *,
    resolve_model: ModelResolver,
    now: Clock,
) -> Added:
    judge = Judge(store, resolve_model=resolve_model, now=now)
    judge.prepare(made)
    stored = [store.save(item, gpu=gpu_of(item)) for item in made]
    judge.count([kept for kept, item in zip(stored, made, strict=True) if kept.id == item.id])
    configurations = dict.fromkeys(item.configuration for item in stored if item.configuration)
    found = (
        refit(store, configuration, resolve_model=resolve_model, now=now)
        for configuration in configurations
    )
    return Added(
        measurements=stored,
        calibrations=[record for record in found if record is not None],
        is_new=any(kept.id == item.id for kept, item in zip(stored, made, strict=True)),
    )


def remove_measurement(
    store: MeasurementStore, identifier: str, *, resolve_model: ModelResolver, now: Clock
) -> bool:
    """Remove a measurement and fit what is left; tell whether it was there."""
    removed = store.delete(identifier)
    if removed is None:
        return False
    if removed.configuration is not None:
        left = refit(store, removed.configuration, resolve_model=resolve_model, now=now)
        if left is None:
            store.drop_calibration(gpu=gpu_of(removed), configuration=removed.configuration)
    return True


def _measurement(accepted: Accepted, *, resolve_model: ModelResolver, at: datetime) -> Measurement:
    record = Measurement(
        id=time_ordered_id(at, entropy=secrets.token_bytes(ENTROPY_BYTES)),
        created_at=timestamp(at),
        digest=accepted.digest,
        model=accepted.model,
        hardware=accepted.hardware,
        engine=accepted.engine,
        workload=accepted.workload,
        observed=accepted.observed,
        source=accepted.source,
        cpu=accepted.cpu,
        notes=list(accepted.notes),
    )
    if record.cpu:
        return record
    situation = situation_of(record, resolve_model=resolve_model)
    return msgspec.structs.replace(record, configuration=key_of(situation).text)
