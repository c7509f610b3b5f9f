"""What a stored recommendation says of its validations."""

import re
from collections.abc import Sequence

import msgspec

from api_schemas.recommendation import ValidationLink
from api_schemas.validation import TERMINAL, LoadPoint, Measured, Validation

_OTHER_LABELS = re.compile(r"defaults|knee|confirm")


def with_validations(body: bytes, validations: Sequence[Validation]) -> bytes:
    """Return a recommendation's bytes with its validations, newest first, and what they measured.

    Without any the bytes stay as they are; every other field keeps its very bytes.
    """
    if not validations:
        return body
    fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    fields["validations"] = _raw([link_to(validation) for validation in validations])
    newest = next((item for item in validations if item.status in TERMINAL), None)
    fields["measured"] = _raw(None if newest is None else summarise(newest))
    return msgspec.json.encode(fields)


def link_to(validation: Validation) -> ValidationLink:
    """Return the row that a recommendation shows of a validation."""
    return ValidationLink(
        id=validation.id,
        status=validation.status,
        verdict=validation.verdict,
        url=address_of(validation.id),
    )


def address_of(identifier: str) -> str:
    """Return the address of a validation."""
    return f"/validations/{identifier}"


def address_of_study(identifier: str) -> str:
    """Return where a study is."""
    return f"/studies/{identifier}"


def summarise(validation: Validation) -> Measured:
    """Return a finished validation in short."""
    return Measured(
        validation_id=validation.id,
        mode=validation.mode,
        status=validation.status,
        verdict=validation.verdict,
        finished_at=validation.finished_at,
        environment=validation.environment,
        startup=validation.startup,
        load=_last_point(validation.load_points),
        knee=validation.knee,
        comparison=validation.comparison,
        suggested_config=validation.suggested_config,
        slo=validation.slo,
        failure=validation.failure,
        notes=validation.notes,
    )


def _last_point(points: Sequence[LoadPoint]) -> LoadPoint | None:
    """Return the newest load point of the recommended settings under the asked load.

    Steps of a walk and starts with other settings stand in only when there is nothing else.
    """
    newest = list(reversed(points))
    as_asked = [point for point in newest if not _OTHER_LABELS.search(point.label)]
    return next(iter(as_asked or newest), None)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
