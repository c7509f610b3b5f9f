"""Calibrations that an answer may use, and which of them speaks for a configuration."""

from collections.abc import Sequence

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.measurement import CalibratedBy, CalibratedRange
from api_schemas.model import Speculative
from api_schemas.workload import BatchArrivals, ClosedLoop, Workload
from service.tuning.calibrations.key import ConfigurationKey, configuration_key, release_of
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.latency.calibration import Calibration
from service.tuning.lengths import mean_tokens
from service.tuning.models.spec import ModelSpec
from service.tuning.simulation.traffic import mean_arrival_rate

_ALL = frozenset({"ttft", "tpot", "output_tokens_per_s"})
_QUEUED = frozenset({"ttft"})
_NONE: frozenset[str] = frozenset()
_REACH = 2.0
"""How far beyond the measured loads the narrow band still holds, as a factor."""


class KnownCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration that is used, with what it speaks for and rests on."""

    key: ConfigurationKey
    calibration: Calibration
    version: str
    measurement_ids: tuple[str, ...]
    range: CalibratedRange | None = None

    @property
    def basis(self) -> CalibratedBy:
        """What an answer says of the measurements that it rests on."""
        return CalibratedBy(version=self.version, measurement_ids=list(self.measurement_ids))

    def under(self, workload: Workload | None) -> Calibration:
        """Return the calibration for a load: beyond the measured range its band is not narrowed."""
        if self.range is None or workload is None:
            return self.calibration
        lost = _unsure(self.range, workload)
        kept = {name: w for name, w in self.calibration.log_widths.items() if name not in lost}
        return msgspec.structs.replace(self.calibration, log_widths=kept)


Calibrations = Sequence[KnownCalibration]


def calibration_for(
    calibrations: Calibrations,
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    speculative: Speculative | None = None,
) -> KnownCalibration | None:
    """Return the calibration of this very configuration (effective settings), if there is one."""
    if not calibrations:
        return None
    split, release = max(config.tensor_parallel_size or 1, 1), release_of(version)
    # A search asks for every candidate: most are told apart without looking at the whole model.
    near = [
        known
        for known in calibrations
        if known.key.tensor_parallel_size == split and known.key.release == release
    ]
    if not near:
        return None
    key = configuration_key(
        spec=spec, node=node, config=config, version=version, speculative=speculative
    )
    return next((known for known in near if known.key == key), None)


def _unsure(measured: CalibratedRange, workload: Workload) -> frozenset[str]:
    """Return the metrics that the measured loads say too little of.

    Beyond the measured lengths or load that is all of them. Under arrival rates TTFT is mostly
    queueing: loops say little of it, but what a step costs they do.
    """
    lengths = (
        (measured.prompt_tokens, workload.prompt_tokens),
        (measured.output_tokens, workload.output_tokens),
    )
    if not all(_covers(span, mean_tokens(given)) for span, given in lengths if given is not None):
        return _ALL
    in_flight, rate = in_flight_of(workload), rate_of(workload)
    if in_flight is not None and measured.in_flight is not None:
        return _NONE if _covers(measured.in_flight, in_flight) else _ALL
    if rate is not None and measured.requests_per_s is not None:
        return _NONE if _covers(measured.requests_per_s, rate) else _ALL
    return _QUEUED


def _covers(span: tuple[float, float], value: float) -> bool:
    return span[0] / _REACH <= value <= span[1] * _REACH


def in_flight_of(workload: Workload) -> float | None:
    """Return the requests in flight of a closed loop or a burst; None under a rate."""
    match workload.arrivals:
        case ClosedLoop() as loop:
            return float(loop.max_concurrency)
        case BatchArrivals() as batch:
            return float(batch.num_requests)
        case _:
            return None


def rate_of(workload: Workload) -> float | None:
    """Return the requests per second that arrive; None in loops and bursts."""
    arrivals = workload.arrivals
    return None if arrivals is None else mean_arrival_rate(arrivals)
