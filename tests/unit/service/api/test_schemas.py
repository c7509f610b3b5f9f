"""Component schemas mean what the types mean, in words that client generators read."""

from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest

from service.api.schemas import component_schemas


class Sample(msgspec.Struct, kw_only=True):
    """Every construct that a generator stumbled over."""

    interval: tuple[float, float]
    percentile: Literal[50, 95, "mean"]
    metric: Literal["ttft", "tpot"]
    config: dict[str, Any]
    named: dict[str, int]
    size: Annotated[int, msgspec.Meta(ge=1)] = 1


_GOOD = {
    "interval": [1.0, 2.0],
    "percentile": 50,
    "metric": "ttft",
    "config": {"a": [1]},
    "named": {"a": 1},
}


def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = component_schemas([Sample])["Sample"]
    return schema


@pytest.mark.parametrize(
    "change",
    [
        {"interval": [1.0]},
        {"interval": [1.0, 2.0, 3.0]},
        {"percentile": "p50"},
        {"percentile": 51},
        {"metric": 50},
        {"config": []},
        {"named": {"a": "b"}},
        {"size": 0},
    ],
)
def test_the_schema_refuses_what_the_type_refuses(change: dict[str, Any]) -> None:
    """The words differ from msgspec's own; the meaning does not."""
    validator = jsonschema.Draft202012Validator(_schema())

    assert validator.is_valid(_GOOD)
    assert validator.is_valid({**_GOOD, "percentile": "mean", "config": {}})
    assert not validator.is_valid(_GOOD | change)


def test_enumerations_have_one_type_each() -> None:
    """Texts and numbers are two enumerations to choose from, each with its type."""
    properties = _schema()["properties"]

    assert properties["metric"] == {"type": "string", "enum": ["tpot", "ttft"]}
    assert properties["percentile"] == {
        "anyOf": [{"type": "integer", "enum": [50, 95]}, {"type": "string", "enum": ["mean"]}]
    }


def test_no_schema_is_a_bare_false_and_free_objects_say_so() -> None:
    """An array of two needs no `items: false`, and an object of any content allows any."""
    properties = _schema()["properties"]

    assert "items" not in properties["interval"]
    assert properties["config"] == {"type": "object", "additionalProperties": True}
    assert properties["named"]["additionalProperties"] == {"type": "integer"}
