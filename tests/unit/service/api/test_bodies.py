"""Reading request bodies."""

import pytest

from api_schemas.estimate import EstimateRequest
from service.api.bodies import MAX_DEPTH, read_body
from service.api.problems import Refusal

_HEAD = b'{"hardware":{"gpu":"L4"},"model":{"id":"a/b","config":{"x":'


def _with_config(value: bytes) -> bytes:
    return _HEAD + value + b"}}}"


def _refusal(body: bytes) -> Refusal:
    with pytest.raises(Refusal) as caught:
        read_body(body, EstimateRequest)
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"model":',
        _with_config(b"NaN"),
        _with_config(b"Infinity"),
        _with_config(b"1e400"),
        _with_config(b"1" * 20),
        _with_config(b"-" + b"9" * 5000),
        _with_config(b'"\\ud800"'),
    ],
)
def test_what_is_no_request_is_refused_as_such(body: bytes) -> None:
    """Empty, malformed, mistyped or out-of-range bodies are invalid requests with one error."""
    refusal = _refusal(body)

    assert refusal.code == "invalid-request"
    assert len(refusal.errors) == 1


@pytest.mark.parametrize("depth", [MAX_DEPTH, 5000, 1_000_000])
def test_deep_nesting_is_too_large(depth: int) -> None:
    """A body nested too deep is refused before anything recurses into it."""
    assert _refusal(_with_config(b"[" * depth + b"]" * depth)).code == "too-large"


@pytest.mark.parametrize(
    "value",
    [
        b"[" * (MAX_DEPTH - 3) + b"]" * (MAX_DEPTH - 3),
        b'"' + b"[{" * 500 + b'"',
        b'"\\"[[' + b"[" * 500 + b'"',
        b'"12345678901234567890123"',
        b"0.12345678901234567890123",
        b"123456789012345678901.5",
        b"1e-300",
        b"9223372036854775807",
        b"[" + b"{}," * 500 + b"{}]",
    ],
)
def test_what_only_looks_monstrous_is_read(value: bytes) -> None:
    """Brackets and digits in strings, long fractions and wide lists are fine."""
    assert read_body(_with_config(value), EstimateRequest).model.id == "a/b"


def test_one_number_may_be_written_in_two_ways() -> None:
    """2.0 is the integer 2; the text "2" is refused with its place."""
    body = b'{"hardware":{"gpu":"L4","gpus_per_node":%s},"model":{"id":"a/b"}}'

    assert read_body(body % b"2.0", EstimateRequest) == read_body(body % b"2", EstimateRequest)
    assert _refusal(body % b'"2"').errors[0].pointer == "/hardware/gpus_per_node"
    assert _refusal(body % b"2.5").errors[0].pointer == "/hardware/gpus_per_node"


@pytest.mark.parametrize(
    "body",
    [
        b'{"hardware":{"gpu":"L4"},"model":{"id":"a/b"},"hardware":{"gpu":"H100"}}',
        b'{"hardware":{"gpu":"L4","gpu":"H100"},"model":{"id":"a/b"}}',
        b'{"hardware":{"gpu":"L4","g\\u0070u":"L4"},"model":{"id":"a/b"}}',
        _with_config(b'[{"gpu":1,"gpu":1}]'),
    ],
)
def test_a_key_that_stands_twice_is_refused(body: bytes) -> None:
    """Which of two values is meant would be a guess, however deep they are and however spelt."""
    refusal = _refusal(body)

    assert refusal.code == "invalid-request"
    assert "stands twice in one object" in refusal.errors[0].message


def test_one_key_in_two_objects_is_no_repetition() -> None:
    """Objects have keys of their own."""
    read = read_body(_with_config(b'[{"x":1},{"x":{"x":1}}]'), EstimateRequest)

    assert read.model.config == {"x": [{"x": 1}, {"x": {"x": 1}}]}
