"""Mistakes in a body are explained with their place and what is allowed."""

import msgspec
import pytest

from api_schemas.estimate import EstimateRequest
from service.field_hints import explain_mistake

_MINIMAL = {"model": {"id": "a/b"}, "hardware": {"gpu": "L4"}}


def _mistake(document: object) -> tuple[str, str]:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(document, EstimateRequest)
    error = explain_mistake(str(caught.value), EstimateRequest)
    return error.pointer, error.message


@pytest.mark.parametrize(
    ("changes", "pointer", "hint"),
    [
        ({"hardwre": {}}, "/hardwre", "allowed: engine, hardware, model, slo, workload"),
        ({"hardware": {}}, "/hardware/gpu", "missing required field"),
        ({"hardware": {"gpu": "L4", "nodes": 0}}, "/hardware/nodes", ">= 1"),
        ({"hardware": {"gpu": "L4", "nodes": "2"}}, "/hardware/nodes", "got `str`"),
        (
            {"hardware": {"gpu": "L4", "interconnect": "wifi"}},
            "/hardware/interconnect",
            "allowed: none, nvlink, pcie, xgmi",
        ),
        (
            {"slo": {"targets": [{"metric": "ttf", "limit_ms": 1}]}},
            "/slo/targets/0/metric",
            "allowed: e2el, itl, tpot, ttft",
        ),
        (
            {"workload": {"arrivals": {"kind": "posson"}}},
            "/workload/arrivals/kind",
            "allowed: poisson, gamma",
        ),
        (
            {"engine": {"config": {"max_num_seq": 4}}},
            "/engine/config/max_num_seq",
            "did you mean max_num_seqs",
        ),
        ({"engine": {"env": {"a b": "c"}}}, "/engine/env", "matching regex"),
        ({"engine": {"env": {"A": 1}}}, "/engine/env", "got `int`"),
    ],
)
def test_a_mistake_names_its_place_and_what_is_allowed(
    changes: dict[str, object], pointer: str, hint: str
) -> None:
    """Every kind of mistake has a JSON pointer and says what would have been right."""
    found_pointer, message = _mistake(_MINIMAL | changes)

    assert found_pointer == pointer
    assert hint in message


def test_a_name_far_from_all_settings_gets_no_long_list() -> None:
    """Among hundreds of settings only near names are worth saying."""
    _, message = _mistake(_MINIMAL | {"engine": {"config": {"zzzzqqq": 1}}})

    assert len(message) < 100


def test_field_names_are_escaped_in_pointers() -> None:
    """A slash or tilde in a field's name is escaped as RFC 6901 says."""
    pointer, _ = _mistake(_MINIMAL | {"a/b~c": 1})

    assert pointer == "/a~1b~0c"


def test_a_long_value_is_cut_short() -> None:
    """An answer never repeats a long value in full."""
    _, message = _mistake(_MINIMAL | {"hardware": {"gpu": "L4", "interconnect": "x" * 5000}})

    assert len(message) < 500


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"model": "Qwen/Qwen3-8B"}, 'such as {"id": ...}'),
        ({"hardware": "L40S"}, 'such as {"gpu": ...}'),
        ({"workload": "chat"}, "allowed: arrivals, max_request_tokens"),
        ({"workload": {"prompt_tokens": "many"}}, "a kind: fixed, uniform, lognormal"),
        ({"engine": {"config": 5}}, "got `int`"),
        ({"config": {"max_num_seqs": 4}}, "config stands in /engine or /model"),
        ({"gpus_per_node": 4}, "gpus_per_node stands in /hardware"),
        ({"engine": {"version": "newest"}}, "a value such as 0.33.0"),
        ({"workload": {"arrivals": {"requests_per_s": 5}}}, "allowed: poisson, gamma"),
    ],
)
def test_a_newcomer_s_mistake_is_told_the_right_shape(
    changes: dict[str, object], hint: str
) -> None:
    """A name for an object, a field at the wrong level, a word for a number."""
    assert hint in _mistake(_MINIMAL | changes)[1]
