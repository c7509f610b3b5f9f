"""From the load points of a validation to measurements."""

import msgspec

from api_schemas.engine import Engine
from api_schemas.estimate import Percentiles
from api_schemas.hardware import Hardware
from api_schemas.measurement import MeasurementSource, Observed, Statistics
from api_schemas.model import ModelRef
from api_schemas.validation import LoadPoint
from api_schemas.workload import Workload
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.accept import Accepted
from service.tuning.measurements.plausible import refuse_implausible


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    """What a validation really ran, one replica of it."""

    validation_id: str
    model: ModelRef
    hardware: Hardware
    """On a CPU its name stands for the GPU."""
    engine_version: str
    workload: Workload
    """The lengths; each point has its own arrivals."""
    cpu: bool
    kv_cache_tokens: int | None = None


def accepted_load_point(point: LoadPoint, proven: Proven) -> Accepted | None:
    """Return a load point as a measurement; None for one that cannot be believed."""
    if point.failed or not point.completed:
        return None
    workload = msgspec.structs.replace(proven.workload, arrivals=point.offered, preset=None)
    observed = _observed(point, kv_cache_tokens=proven.kv_cache_tokens)
    try:
        refuse_implausible(observed, workload, place=lambda name: f"/load_points/{name}")
    except InvalidRequest:
        return None
    return Accepted(
        model=proven.model,
        hardware=proven.hardware,
        engine=Engine(version=proven.engine_version, config=point.config),
        workload=workload,
        observed=observed,
        source=MeasurementSource(tool="validation", validation_id=proven.validation_id),
        cpu=proven.cpu,
    )


def _observed(point: LoadPoint, *, kv_cache_tokens: int | None) -> Observed:
    return Observed(
        ttft_ms=_statistics(point.ttft_ms),
        tpot_ms=_statistics(point.tpot_ms),
        itl_ms=_statistics(point.itl_ms),
        e2el_ms=_statistics(point.e2el_ms),
        requests_per_s=point.requests_per_s or None,
        output_tokens_per_s=point.output_tokens_per_s or None,
        duration_s=point.duration_s or None,
        completed=point.completed,
        failed=0,
        preemptions_per_request=point.preemptions_per_request,
        kv_cache_usage_peak=point.kv_cache_usage_peak,
        kv_cache_tokens=kv_cache_tokens,
    )


def _statistics(values: Percentiles) -> Statistics | None:
    kept = {
        name: value
        for name in Statistics.__struct_fields__
        if (value := getattr(values, name, None))
    }
    return Statistics(**kept) if kept else None
