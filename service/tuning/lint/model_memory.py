"""One look-up for each model of a check, however many engines serve it."""

from api_schemas.model import ModelRef
from service.tuning.errors import TuningError
from service.tuning.models.spec import ModelSpec
from service.tuning.situation import ModelResolver


def remembering(resolve_model: ModelResolver) -> ModelResolver:
    """Return a resolver that answers again what it answered before, refusals included."""
    known: dict[tuple[str, str | None], ModelSpec | TuningError] = {}

    def resolve(model: ModelRef) -> ModelSpec:
        if model.config is not None:
            return resolve_model(model)
        key = (model.id, model.revision)
        if key not in known:
            try:
                known[key] = resolve_model(model)
            except TuningError as error:
                known[key] = error
        found = known[key]
        if isinstance(found, TuningError):
            raise found
        return found

    return resolve
