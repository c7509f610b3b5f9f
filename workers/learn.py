"""What was measured goes into the performance database, and sharpens the next answers."""

from collections.abc import Sequence
from datetime import UTC, datetime

import redis

from api_schemas.validation import LoadPoint
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
    """Keep every load point of a validation, whatever its end; a result never fails for this."""
    identifier = run.validation.id
    try:
        validation = store.find(identifier)
        tenant = store.tenant_of(identifier)
    except StoreUnavailable as error:
        _log.warning("measurements_not_kept", id=identifier, reason=str(error))
        return
    if validation is not None:
        keep_points(
            run.client,
            validation.load_points,
            subject=subject,
            identifier=identifier,
            tenant=tenant,
        )


def keep_points(
    client: redis.Redis,
    points: Sequence[LoadPoint],
    *,
    subject: Subject,
    identifier: str,
    tenant: str,
) -> None:
    """Keep load points of one subject as measurements of a tenant; what fails is logged."""
    if not points:
        return
    try:
        added = add_load_points(
            MeasurementStore(client, tenant=tenant),
            points,
            proven=proven(subject, identifier=identifier),
            resolve_model=subject.resolve_model,
            now=_utc_now,
        )
    except (StoreUnavailable, TuningError) as error:
        _log.warning("measurements_not_kept", id=identifier, reason=str(error))
        return
    _log.info(
        "measurements_kept",
        id=identifier,
        number=len(added.measurements),
        calibrations={item.configuration: item.status for item in added.calibrations},
    )


def proven(subject: Subject, *, identifier: str) -> Proven:
    """Return what a validation or study really ran."""
    return Proven(
        validation_id=identifier,
        model=subject.model,
        hardware=subject.hardware,
        engine_version=subject.version.text,
        workload=subject.workload,
        cpu=subject.on_cpu,
    )


def _utc_now() -> datetime:
    return datetime.now(UTC)
