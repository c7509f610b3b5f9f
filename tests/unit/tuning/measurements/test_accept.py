"""What a posted measurement must hold, and figures that cannot be true together."""

from typing import Any

import msgspec
import pytest

from api_schemas.measurement import MeasurementRequest
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.accept import accept

_REQUEST: dict[str, Any] = {
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "hardware": {"gpu": "H100-SXM5-80GB"},
    "engine": {"version": "0.33.0"},
    "workload": {
        "prompt_tokens": 1024,
        "output_tokens": 256,
        "arrivals": {"kind": "closed_loop", "max_concurrency": 16},
    },
    "observed": {
        "ttft_ms": {"mean": 92.0, "p50": 80.0, "p99": 210.0},
        "tpot_ms": {"mean": 8.4},
        "e2el_ms": {"mean": 2234.0},
        "requests_per_s": 7.0,
        "output_tokens_per_s": 1790.0,
    },
}


def _accept(**changes: Any) -> Any:  # noqa: ANN401  # JSON in, measurements out
    return accept(msgspec.convert(_REQUEST | changes, MeasurementRequest))


def _observed(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    return {"observed": {**_REQUEST["observed"], **changes}}


def test_figures_in_our_own_shape_are_taken_as_they_are() -> None:
    """Nothing is converted, and the source says that they were stated."""
    (accepted,) = _accept(reference="run 7")

    assert msgspec.to_builtins(accepted.observed) == _REQUEST["observed"]
    assert (accepted.source.tool, accepted.source.reference) == ("stated", "run 7")
    assert accepted.cpu is False


def test_the_same_content_has_the_same_digest() -> None:
    """Labels and notes for people do not make another measurement; another figure does."""
    (one,), (same,) = _accept(), _accept(reference="again", labels={"a": "b"})
    (other,) = _accept(**_observed(requests_per_s=7.1))

    assert one.digest == same.digest != other.digest


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"observed": None}, "/observed"),
        ({"report": {"completed": 1}}, "/observed"),
        ({"observed": {}}, "/observed"),
        ({"observed": None, "report": {"anything": 1}}, "/report"),
        ({"engine": {}}, "/engine/version"),
        ({"workload": {"preset": "chat"}}, "/workload/preset"),
        ({"workload": {"prompt_tokens": 5}}, "/workload/output_tokens"),
        (
            {"workload": {**_REQUEST["workload"], "arrivals": {"kind": "users", "users": 5}}},
            "/workload/arrivals",
        ),
        (_observed(failed=1), "/observed/failed"),
        (_observed(ttft_ms={"p50": 90.0, "p99": 80.0}), "/observed/ttft_ms"),
        (_observed(e2el_ms={"mean": 2.234}), "/observed/e2el_ms"),
        (_observed(tpot_ms={"mean": 0.0084}, e2el_ms=None, ttft_ms=None), "/observed/tpot_ms"),
        (_observed(e2el_ms={"mean": 2.2}, tpot_ms=None, ttft_ms=None), "/observed/e2el_ms"),
        (_observed(e2el_ms={"mean": 2.2}, tpot_ms=None), "/observed/ttft_ms"),
    ],
)
def test_what_cannot_be_used_names_its_field(changes: dict[str, Any], pointer: str) -> None:
    """Missing parts, seconds for milliseconds, falling percentiles: refused where they stand."""
    with pytest.raises(InvalidRequest) as refused:
        _accept(**changes)

    assert refused.value.pointer == pointer
