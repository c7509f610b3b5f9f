"""Whole numbers that are written as floats."""

from typing import Any

import msgspec
import pytest
import yaml

from api_schemas.estimate import EstimateRequest
from api_schemas.measurement import MeasurementRequest
from api_schemas.recommendation import TuningRequest
from api_schemas.study import StudyRequest
from service.api.examples import (
    bench_report_request,
    estimate_request,
    measurement_request,
    study_request,
    tuning_request,
)
from service.whole_numbers import convert, decode_json


def _with_floats(value: Any) -> Any:  # noqa: ANN401
    """Return JSON as a serialiser without integers writes it."""
    if isinstance(value, dict):
        return {name: _with_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if type(value) is int else value


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (tuning_request(), TuningRequest),
        (estimate_request(), EstimateRequest),
        (measurement_request(), MeasurementRequest),
        (bench_report_request(), MeasurementRequest),
        (study_request(), StudyRequest),
    ],
)
def test_a_request_whose_integers_are_floats_means_the_same(
    request_: msgspec.Struct, kind: type[msgspec.Struct]
) -> None:
    """From JSON and from YAML the same is read, whether it says 1 or 1.0."""
    written = _with_floats(msgspec.to_builtins(request_))

    assert decode_json(msgspec.json.encode(written), kind) == request_
    assert convert(yaml.safe_load(yaml.safe_dump(written)), kind) == request_


@pytest.mark.parametrize(
    ("number", "read"), [("2", 2), ("2.0", 2), ("2.000", 2), ("2e0", 2), ("20e-1", 2), ("1E2", 100)]
)
def test_an_integer_is_one_however_it_is_written(number: str, read: int) -> None:
    """Point and exponent change nothing of a whole number, and it is an integer from then on."""
    found = decode_json(f'{{"a": {number}, "b": 0.5}}'.encode(), dict[str, int | float])
    (only,) = decode_json(f"[{number}]".encode(), list[int])

    assert (found["a"], only, type(only)) == (read, read, int)


@pytest.mark.parametrize(
    "number", ["2.5", "1e300", "9007199254740994.0", '"2"', '"2.0"', "true", "null", "[2.0]"]
)
def test_nothing_else_is_taken_for_an_integer(number: str) -> None:
    """Fractions, texts, truths and what a float cannot tell exactly are refused, with the place."""
    content = f'{{"a": {{"b": {number}}}}}'.encode()

    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decode_json(content, dict[str, dict[str, int]])
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        convert(msgspec.json.decode(content), dict[str, dict[str, int]])


def test_limits_hold_for_whole_floats() -> None:
    """A number beyond its limits is refused for that, and names them."""
    body = b'{"model": {"id": "a/b"}, "hardware": {"gpu": "L4", "gpus_per_node": 0.0}}'

    with pytest.raises(msgspec.ValidationError, match="`int` >= 1"):
        decode_json(body, TuningRequest)
