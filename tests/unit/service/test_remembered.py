"""Advice that is remembered."""

import msgspec

from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from service.remembered import recommend_once
from service.tuning.models import catalogue
from service.tuning.models.spec import ModelSpec
from service.tuning.recommend import recommend


def _request(rate: float, model: str = "Qwen/Qwen3-8B") -> TuningRequest:
    body = {
        "model": {"id": model},
        "hardware": {"gpu": "H100-SXM5-80GB"},
        "workload": {"preset": "chat", "arrivals": {"kind": "poisson", "requests_per_s": rate}},
    }
    return msgspec.convert(body, TuningRequest)


def test_the_same_question_gets_the_same_advice_without_being_computed_again() -> None:
    """A repeated request is answered from memory, and as if it were computed."""
    first = recommend_once(_request(1.25), resolve_model=catalogue.resolve_model, calibrations=())

    again = recommend_once(_request(1.25), resolve_model=catalogue.resolve_model, calibrations=())

    assert again is first
    assert again == recommend(_request(1.25))


def test_another_question_is_computed() -> None:
    """A request that differs in a figure gets advice of its own."""
    first = recommend_once(_request(1.25), resolve_model=catalogue.resolve_model, calibrations=())

    other = recommend_once(_request(1.5), resolve_model=catalogue.resolve_model, calibrations=())

    assert other == recommend(_request(1.5))
    assert other != first


def test_a_name_that_now_means_another_model_is_computed_anew() -> None:
    """After a model was registered under a name, earlier advice on that name does not count."""

    def registered(_: ModelRef) -> ModelSpec:
        return catalogue.resolve_model(ModelRef(id="Qwen/Qwen3-4B"))

    first = recommend_once(_request(1.25), resolve_model=catalogue.resolve_model, calibrations=())

    later = recommend_once(_request(1.25), resolve_model=registered, calibrations=())

    assert later != first
    assert later == recommend(_request(1.25), resolve_model=registered)
