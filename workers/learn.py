"""What was measured goes into the performance database, and sharpens the next answers."""

from datetime import UTC, datetime

from api_schemas.validation import Validation
from service.log import get_logger
from service.measurements import add_load_points
from service.store.client import StoreUnavailable
from service.store.measurements import MeasurementStore
from service.store.validations import ValidationStore
from service.tuning.errors import TuningError
from service.tuning.measurements.load_points import Proven
from workers.run import Run
from workers.subject import Subject

_log = get_logger(__name__)


def remember(run: Run, subject: Subject, store: ValidationStore) -> None:
    """Keep every load point of a run, whatever its end; a result never fails for this."""
    try:
        validation = store.find(run.validation.id)
        if validation is None or not validation.load_points:
            return
        added = add_load_points(
            MeasurementStore(run.client),
            validation.load_points,
            proven=proven(validation, subject),
            resolve_model=subject.resolve_model,
            now=_utc_now,
        )
    except (StoreUnavailable, TuningError) as error:
        _log.warning("measurements_not_kept", id=run.validation.id, reason=str(error))
        return
    _log.info(
        "measurements_kept",
        id=run.validation.id,
        number=len(added.measurements),
        calibrations={item.configuration: item.status for item in added.calibrations},
    )


def proven(validation: Validation, subject: Subject) -> Proven:
    """Return what a validation really ran."""
    return Proven(
        validation_id=validation.id,
        model=subject.model,
        hardware=subject.hardware,
        engine_version=subject.version.text,
        workload=subject.workload,
        cpu=subject.on_cpu,
    )


def _utc_now() -> datetime:
    return datetime.now(UTC)
