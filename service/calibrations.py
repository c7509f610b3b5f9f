"""What the measurements of a configuration teach: fitted when they arrive, read by every answer."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from api_schemas.hardware import Hardware
from api_schemas.measurement import (
    CalibratedRange,
    Calibration,
    Measurement,
    MetricResidual,
)
from service.identifiers import timestamp
from service.store.measurements import MeasurementStore
from service.tuning.calibrations.judge import MOST_POINTS, Fitted, calibrate, median_percent
from service.tuning.calibrations.key import ConfigurationKey, gpu_name
from service.tuning.calibrations.known import KnownCalibration, in_flight_of, rate_of
from service.tuning.calibrations.points import key_of, point_of, situation_of
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.latency.calibration import Calibration as LatencyCalibration
from service.tuning.lengths import mean_tokens
from service.tuning.provenance import latency_version
from service.tuning.situation import ModelResolver, Situation

Clock = Callable[[], datetime]
_DIGITS = 12
_ATTEMPTS = 3
"""Fits of one configuration while other requests add to it."""


def refit(
    store: MeasurementStore, configuration: str, *, resolve_model: ModelResolver, now: Clock
) -> Calibration | None:
    """Return what the measurements of a configuration teach, stored; None when there are none.

    Measurements that arrive meanwhile are not lost: it looks again before it is done.
    """
    record = None
    for _ in range(_ATTEMPTS):
        measured = store.of_configuration(configuration, limit=MOST_POINTS)
        if not measured:
            return None
        version = _version(measured)
        if record is not None and record.version == version:
            return record
        record = _stored_fit(store, measured, configuration=configuration, version=version)
        if record is None:
            readable = list(_readable(measured, resolve_model=resolve_model))
            if not readable:
                return None
            record = _fit(readable, configuration=configuration, version=version, at=now())
            store.save_calibration(record)
    return record


def known_calibrations(
    store: MeasurementStore, hardware: Hardware, *, resolve_model: ModelResolver, now: Clock
) -> tuple[KnownCalibration, ...]:
    """Return the calibrations that an answer for this hardware may use.

    One that was fitted to an older latency model is fitted anew, once after an upgrade.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    try:
        node, _ = resolve_hardware(hardware)
    except TuningError:
        return ()  # the answer itself will say what is wrong
    current = latency_version()
    known = []
    for record in store.calibrations_of(gpu_name(node.gpu)):
        fresh: Calibration | None = record
        if record.coefficients_version != current:
            fresh = refit(store, record.configuration, resolve_model=resolve_model, now=now)
        if fresh is not None and fresh.status == "used":
            known.append(as_known(fresh))
    return tuple(known)


def as_known(record: Calibration) -> KnownCalibration:
    """Return a stored calibration as the core uses it."""
    return KnownCalibration(
        key=msgspec.convert(record.key, ConfigurationKey),
        calibration=LatencyCalibration(
            factors=record.factors,
            points=len(record.measurement_ids),
            log_widths={name: math.log(factor) for name, factor in record.band_factors.items()},
        ),
        version=record.version,
        measurement_ids=tuple(record.measurement_ids),
        range=record.range,
    )


def gpu_of(measurement: Measurement) -> str:
    """Return the catalogue's name of what was measured on; of a processor its own name."""
    if measurement.cpu:
        return measurement.hardware.gpu
    try:
        node, _ = resolve_hardware(measurement.hardware)
    except TuningError:
        return measurement.hardware.gpu
    return gpu_name(node.gpu)


def _version(measured: Sequence[Measurement]) -> str:
    """Return what identifies a fit: the measurements and the model that it corrects."""
    content = [latency_version(), *(item.digest for item in measured)]
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:_DIGITS]


def _stored_fit(
    store: MeasurementStore, measured: Sequence[Measurement], *, configuration: str, version: str
) -> Calibration | None:
    """Return the fit of this very content, when it was made before."""
    records = store.calibrations_of(gpu_of(measured[0]))
    return next(
        (r for r in records if r.configuration == configuration and r.version == version), None
    )


def _readable(
    measured: Sequence[Measurement], *, resolve_model: ModelResolver
) -> Iterator[tuple[Measurement, Situation]]:
    """Yield the measurements with what was measured; a model may have been removed since."""
    for item in measured:
        try:
            yield item, situation_of(item, resolve_model=resolve_model)
        except TuningError:
            continue


def _fit(
    measured: Sequence[tuple[Measurement, Situation]],
    *,
    configuration: str,
    version: str,
    at: datetime,
) -> Calibration:
    found = (point_of(item, situation) for item, situation in measured)
    fitted = calibrate([point for point in found if point is not None])
    first, situation = measured[0]
    key = key_of(situation)
    used = [item for item, _ in measured if item.id in fitted.points]
    return Calibration(
        configuration=configuration,
        version=version,
        model=first.model.id,
        gpu=key.gpu,
        engine_version=key.release,
        tensor_parallel_size=key.tensor_parallel_size,
        precision=key.precision,
        key=msgspec.to_builtins(key),
        status="used" if fitted.is_used else "refused",
        reason=fitted.reason,
        factors=dict(fitted.calibration.factors),
        band_factors={
            name: math.exp(width) for name, width in fitted.calibration.log_widths.items()
        },
        residuals=_residuals(fitted),
        range=_range(used),
        measurement_ids=[item.id for item in used],
        coefficients_version=latency_version(),
        created_at=timestamp(at),
    )


def _residuals(fitted: Fitted) -> dict[str, MetricResidual]:
    return {
        metric: MetricResidual(
            points=len(pair.before),
            before_percent=median_percent(pair.before),
            after_percent=median_percent(pair.after),
        )
        for metric, pair in fitted.left_out.items()
    }


def _range(measured: Sequence[Measurement]) -> CalibratedRange | None:
    """Return the span of loads and lengths; None when no lengths were stated."""
    loads = [item.workload for item in measured]
    prompts = _span(mean_tokens(w.prompt_tokens) if w.prompt_tokens else None for w in loads)
    outputs = _span(mean_tokens(w.output_tokens) if w.output_tokens else None for w in loads)
    if prompts is None or outputs is None:
        return None
    return CalibratedRange(
        in_flight=_span(in_flight_of(load) for load in loads),
        requests_per_s=_span(rate_of(load) for load in loads),
        prompt_tokens=prompts,
        output_tokens=outputs,
    )


def _span(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None
