"""A study in the words of a run, which knows validations."""

from typing import Any

from api_schemas.study import Study
from api_schemas.validation import LoadPoint, Validation
from service.store.studies import StudyStore
from service.store.validations import Change
from service.studies import plan_of


class StudyTrack:
    """The store of a study under the words in which a run writes its validation."""

    def __init__(self, store: StudyStore) -> None:
        self._store = store
        self.points: list[LoadPoint] = []
        """Load points since the last trial began."""

    def change(
        self,
        identifier: str,
        *,
        attempt: int,
        load_point: LoadPoint | None = None,
        **fields: Any,  # noqa: ANN401  # fields of a validation
    ) -> Change:
        """Write the stage and what a study shares with a validation; keep points for the trial."""
        if load_point is not None:
            self.points.append(load_point)
        kept = {name: fields[name] for name in ("stage", "notes", "environment") if name in fields}
        return self._store.change(identifier, attempt=attempt, **kept)

    def cancel_requested(self, identifier: str) -> bool:
        """Tell whether somebody asked to end it."""
        return self._store.cancel_requested(identifier)

    def keep_claim(self, identifier: str, *, owner: str, attempt: int) -> bool:
        """Say that a process works on it; False when another attempt does."""
        return self._store.keep_claim(identifier, owner=owner, attempt=attempt)

    def drop_claim(self, identifier: str, *, attempt: int) -> None:
        """Say that nobody works on it any more, unless another attempt does."""
        self._store.drop_claim(identifier, attempt=attempt)


def as_validation(study: Study) -> Validation:
    """Return the study in the words of a run; it is never stored."""
    return Validation(
        id=study.id,
        recommendation_id=study.request.recommendation_id,
        mode="quick",
        plan=plan_of(study.request),
        status="queued",
        stage=study.stage,
        progress=study.progress,
        created_at=study.created_at,
        notes=study.notes,
        queue=study.queue,
        attempt=study.attempt,
    )
