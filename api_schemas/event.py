"""What the streams of validations and studies tell, event by event."""

import msgspec
from msgspec import UNSET, UnsetType

from api_schemas.study import StudyStatus
from api_schemas.validation import ValidationStatus, Verdict


class ValidationChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of a validation; what is absent stayed as it was."""

    id: str
    status: ValidationStatus | UnsetType = UNSET
    stage: str | UnsetType = UNSET
    progress: float | UnsetType = UNSET
    verdict: Verdict | UnsetType | None = UNSET


class StudyChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changed of a study; what is absent stayed as it was."""

    id: str
    status: StudyStatus | UnsetType = UNSET
    stage: str | UnsetType = UNSET
    progress: float | UnsetType = UNSET
