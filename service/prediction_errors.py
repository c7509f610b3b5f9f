"""How far off the service was, told by every measurement that arrives."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from api_schemas.estimate import EstimateRequest
from api_schemas.hardware import Hardware
from api_schemas.measurement import Measurement
from api_schemas.workload import Workload
from service.calibrations import Clock, known_calibrations
from service.store.measurements import MeasurementStore
from service.store.prediction_errors import OTHER, ErrorGroup
from service.tuning.errors import TuningError
from service.tuning.estimate import estimate
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.measurements.prediction_errors import prediction_errors
from service.tuning.played_run import run_of
from service.tuning.situation import ModelResolver

if TYPE_CHECKING:
    from service.tuning.calibrations.known import KnownCalibration

_MOST_AT_ONCE = 25
"""Measurements of one request that are judged: a long report is not to wait for all of them."""


class Judge:
    """Compares measurements with what the service would have answered before it knew them."""

    def __init__(
        self, store: MeasurementStore, *, resolve_model: ModelResolver, now: Clock
    ) -> None:
        self._store = store
        self._resolve_model = resolve_model
        self._now = now
        self._known: dict[Hardware, tuple[KnownCalibration, ...]] = {}

    def prepare(self, measurements: Sequence[Measurement]) -> None:
        """Remember the calibrations as they are before these measurements change them.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        for item in itertools.islice(measurements, _MOST_AT_ONCE):
            if item.hardware not in self._known:
                self._known[item.hardware] = known_calibrations(
                    self._store, item.hardware, resolve_model=self._resolve_model, now=self._now
                )

    def count(self, measurements: Sequence[Measurement]) -> None:
        """Count how far the predictions of these are off; what cannot be predicted is left out.

        Raises:
            StoreUnavailable: They are not known to be counted.
        """
        for item in itertools.islice(measurements, _MOST_AT_ONCE):
            request = EstimateRequest(
                model=item.model,
                hardware=item.hardware,
                engine=item.engine,
                workload=_as_it_ran(item),
            )
            try:
                predicted = estimate(
                    request,
                    resolve_model=self._resolve_model,
                    calibrations=self._known.get(item.hardware, ()),
                )
                family = self._resolve_model(item.model).architecture
            except TuningError:
                continue
            group = ErrorGroup(
                gpu=gpu_label(item.hardware), model_family=family, basis=predicted.basis
            )
            self._store.errors.add(group, prediction_errors(item.observed, predicted))


def _as_it_ran(item: Measurement) -> Workload:
    """Return the load of a measurement with its end: a test is no service that goes on."""
    arrivals, completed = item.workload.arrivals, item.observed.completed
    if arrivals is None or completed is None:
        return item.workload
    ending = run_of(arrivals, num_requests=completed)
    return msgspec.structs.replace(item.workload, arrivals=ending)


def gpu_label(hardware: Hardware) -> str:
    """Return the catalogue's name of a GPU; what a caller described or named itself is `other`."""
    if hardware.spec is not None:
        return OTHER
    try:
        return resolve_hardware(hardware)[0].gpu.name
    except TuningError:
        return OTHER
