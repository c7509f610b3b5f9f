"""Advice that was given before: the same question about the same model is answered from memory.

What a name means, and what was measured, may change between two questions, so that a question is
the request with the model as it is known now; with measurements in play everything is computed.
"""

from api_schemas.model import ModelRef
from api_schemas.recommendation import Advice, TuningRequest
from service.tuning.calibrations.known import Calibrations
from service.tuning.errors import TuningError
from service.tuning.models.spec import ModelSpec
from service.tuning.recommend import recommend
from service.tuning.search.drafter import resolve_drafter
from service.tuning.search.memo import Memo, encoded
from service.tuning.situation import ModelResolver

_ADVICE: Memo[Advice] = Memo(most=128)


def recommend_once(
    request: TuningRequest, *, resolve_model: ModelResolver, calibrations: Calibrations
) -> Advice:
    """Return what `recommend` does, from memory where it was asked before.

    Raises:
        TuningError: As `recommend`.
    """
    resolve = _looking_up_once(resolve_model)

    def compute() -> Advice:
        return recommend(request, resolve_model=resolve, calibrations=calibrations)

    if calibrations:
        return compute()
    try:
        spec = resolve(request.model)
        draft, _ = resolve_drafter(request.model, resolve)
    except TuningError:
        return compute()  # which names what is wrong in the order of the fields
    return _ADVICE.once((encoded(request), spec, draft), compute)


def _looking_up_once(resolve_model: ModelResolver) -> ModelResolver:
    """Return a resolver for one answer: its steps ask for the same model, and mean the same."""
    known: dict[bytes, ModelSpec] = {}

    def resolve(model: ModelRef) -> ModelSpec:
        content = encoded(model)
        if content not in known:
            known[content] = resolve_model(model)
        return known[content]

    return resolve
