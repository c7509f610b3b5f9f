"""The model that drafts tokens, when it is one of its own."""

from api_schemas.explanation import Finding
from api_schemas.model import ModelRef
from service.tuning.errors import TuningError
from service.tuning.models.spec import ModelSpec
from service.tuning.situation import ModelResolver

_OWN_MODEL = frozenset({"eagle", "eagle3", "draft_model"})


def resolve_drafter(
    model: ModelRef, resolve_model: ModelResolver
) -> tuple[ModelSpec | None, tuple[Finding, ...]]:
    """Return the drafter's spec, and a finding where its memory cannot be counted."""
    speculative = model.speculative
    if speculative is None or speculative.model is None or speculative.method not in _OWN_MODEL:
        return None, ()
    try:
        return resolve_model(speculative.model), ()
    except TuningError as error:
        return None, (
            Finding(
                rule="CAP012",
                severity="warning",
                setting="speculative_config",
                message=(
                    f"The drafter {speculative.model.id} is not in the memory plan: {error.message}"
                ),
                suggestion="Give its config.json in model.speculative.model.config.",
            ),
        )
