"""Calibrations that an answer may use, and which of them speaks for a configuration."""

from collections.abc import Sequence

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.measurement import CalibratedBy, CalibratedRange
from api_schemas.model import Speculative
from api_schemas.workload import BatchArrivals, ClosedLoop, Workload
from service.tuning.calibrations.key import ConfigurationKey, configuration_key
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.latency.calibration import Calibration
from service.tuning.lengths import mean_tokens
from service.tuning.models.spec import ModelSpec

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
        if self.range is None or workload is None or _is_within(self.range, workload):
            return self.calibration
        return msgspec.structs.replace(self.calibration, log_widths={})


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
    key = configuration_key(
        spec=spec, node=node, config=config, version=version, speculative=speculative
    )
    return next((known for known in calibrations if known.key == key), None)


def _is_within(measured: CalibratedRange, workload: Workload) -> bool:
    lengths = (
        (measured.prompt_tokens, workload.prompt_tokens),
        (measured.output_tokens, workload.output_tokens),
    )
    means = [(span, mean_tokens(given)) for span, given in lengths if given is not None]
    load = load_of_arrivals(workload)
    if load is not None:
        means.append((measured.load, load))
    return all(span[0] / _REACH <= value <= span[1] * _REACH for span, value in means)


def load_of_arrivals(workload: Workload) -> float | None:
    """Return requests in flight of a loop or burst; None for rates, which saturate elsewhere."""
    match workload.arrivals:
        case ClosedLoop() as loop:
            return float(loop.max_concurrency)
        case BatchArrivals() as batch:
            return float(batch.num_requests)
        case _:
            return None
