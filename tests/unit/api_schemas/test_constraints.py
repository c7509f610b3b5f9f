"""What the constrained scalars let through."""

import re
from typing import Any

import msgspec
import pytest

from api_schemas.base import Labels
from api_schemas.catalogue import ModelRegistration
from api_schemas.estimate import EstimateRequest
from api_schemas.hardware import GpuSpec
from api_schemas.recommendation import TuningRequest

_SPEC = {
    "memory_gib": 80,
    "bandwidth_gb_s": 2000,
    "bf16_tflops": 300,
    "compute_capability": "9.0",
}


def _request(**engine: object) -> dict[str, Any]:
    return {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "L4"}, "engine": engine}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"x\n": "1"}, Labels),
        ({**_request(), "model": {"id": "Qwen/Qwen3-8B\n"}}, EstimateRequest),
        (_request(version="0.33.0\n"), EstimateRequest),
        (_request(env={"A\n": "1"}), EstimateRequest),
        ({**_SPEC, "compute_capability": "9.0\n"}, GpuSpec),
    ],
)
def test_no_name_ends_in_a_line_break(document: object, kind: object) -> None:
    """A line break at the end is refused like one anywhere else."""
    with pytest.raises(msgspec.ValidationError, match="regex"):
        msgspec.convert(document, kind)


def test_version_spellings_are_kept() -> None:
    """Releases, pre-releases and builds pass; what they mean is the engine's business."""
    for text in ("0.33.0", "v0.33", "0.11.0rc1", "0.10.2.dev3+g1a2b3c", "0.9.1-post1"):
        request = msgspec.convert(_request(version=text), EstimateRequest)
        assert request.engine is not None
        assert request.engine.version == text


@pytest.mark.parametrize("kind", [TuningRequest, EstimateRequest, ModelRegistration])
def test_no_pattern_backtracks_without_bound(kind: type[Any]) -> None:
    """A repeated group never holds a repeat that can match the same text in several ways."""
    _, components = msgspec.json.schema_components([kind])
    patterns = {node["pattern"] for node in _nodes(components) if "pattern" in node}
    for pattern in patterns:
        assert re.search(r"\?\[[^\]]*\][+*]\)[+*]", pattern) is None, pattern


def _nodes(value: object) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [node for item in value for node in _nodes(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(node for item in value.values() for node in _nodes(item))]


@pytest.mark.parametrize("field", ["memory_gib", "bandwidth_gb_s", "bf16_tflops"])
def test_figures_of_a_part_are_those_of_hardware(field: str) -> None:
    """A figure so small that times computed from it overflow is refused."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({**_SPEC, field: 1e-300}, GpuSpec)
