"""From a posted measurement or report to the measurements that are stored."""

import hashlib

import msgspec

from api_schemas.base import Json
from api_schemas.engine import Engine
from api_schemas.hardware import Hardware
from api_schemas.measurement import MeasurementRequest, MeasurementSource, Observed
from api_schemas.model import ModelRef
from api_schemas.workload import Trace, Users, Workload
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.guidellm import is_guidellm, read_guidellm
from service.tuning.measurements.plausible import refuse_implausible
from service.tuning.measurements.reading import Reading
from service.tuning.measurements.vllm_bench import is_vllm_bench, read_vllm_bench

_REPORT = "/report"


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """One load point in our own definitions, with what it ran on."""

    model: ModelRef
    hardware: Hardware
    engine: Engine
    workload: Workload
    observed: Observed
    source: MeasurementSource
    cpu: bool
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """What identifies the content: same figures of the same thing, same digest."""
        content = (
            self.model.id,
            self.model.config,
            self.hardware,
            self.engine,
            self.workload,
            self.observed,
            self.cpu,
        )
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:32]


def accept(request: MeasurementRequest) -> list[Accepted]:
    """Return the measurements that a request holds, one per load point.

    Raises:
        InvalidRequest: It holds none, or one that cannot be believed or converted.
    """
    if (request.observed is None) == (request.report is None):
        raise InvalidRequest("exactly one of observed and report is needed", pointer="/observed")
    if request.engine.version is None:
        raise InvalidRequest(
            "the vLLM version that was measured is needed", pointer="/engine/version"
        )
    readings = _readings(request)
    for reading in readings:
        _refuse_incomplete(reading)
        refuse_implausible(reading.observed, reading.workload, place=reading.place)
    return [_accepted(request, reading) for reading in readings]


def _readings(request: MeasurementRequest) -> list[Reading]:
    stated = request.workload or Workload()
    if stated.preset is not None:
        raise InvalidRequest(
            "state the lengths and arrivals that were measured, not a preset",
            pointer="/workload/preset",
        )
    if request.observed is not None:
        return [
            Reading(tool="stated", workload=stated, observed=request.observed, pointer="/observed")
        ]
    return read_report(request.report or {}, stated=stated)


def read_report(report: dict[str, Json], *, stated: Workload) -> list[Reading]:
    """Return the load points of a report, told apart by its keys.

    Raises:
        InvalidRequest: It is neither of the known kinds, or cannot be used.
    """
    if is_guidellm(report):
        return read_guidellm(report, stated=stated, pointer=_REPORT)
    if is_vllm_bench(report):
        return [read_vllm_bench(report, stated=stated, pointer=_REPORT)]
    raise InvalidRequest(
        "it is neither a result of `vllm bench serve` (completed, request_throughput, "
        "mean_ttft_ms, ...) nor a GuideLLM report (benchmarks[].metrics)",
        pointer=_REPORT,
    )


def _refuse_incomplete(reading: Reading) -> None:
    workload = reading.workload
    if isinstance(workload.arrivals, Trace):
        return
    for name in ("prompt_tokens", "output_tokens", "arrivals"):
        if getattr(workload, name) is None:
            raise InvalidRequest(f"the measured load needs {name}", pointer=f"/workload/{name}")
    if isinstance(workload.arrivals, Users):
        raise InvalidRequest(
            "state the load that was offered, not users", pointer="/workload/arrivals"
        )


def _accepted(request: MeasurementRequest, reading: Reading) -> Accepted:
    return Accepted(
        model=request.model,
        hardware=request.hardware,
        engine=request.engine,
        workload=reading.workload,
        observed=reading.observed,
        source=MeasurementSource(tool=reading.tool, reference=request.reference),
        cpu=request.cpu,
        notes=reading.notes,
    )
