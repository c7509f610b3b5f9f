"""Advice that was given before: the same question about the same model is answered from memory.

What a name means, and what was measured, may change between two questions, so that a question is
the request with the model as it is known now; with measurements in play everything is computed.
"""

from api_schemas.recommendation import Advice, TuningRequest
from service.tuning.calibrations.known import Calibrations
from service.tuning.recommend import recommend, understand
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

    def compute() -> Advice:
        return recommend(request, resolve_model=resolve_model, calibrations=calibrations)

    if calibrations:
        return compute()
    problem, _ = understand(request, resolve_model=resolve_model)
    return _ADVICE.once((encoded(request), problem.spec, problem.draft), compute)
