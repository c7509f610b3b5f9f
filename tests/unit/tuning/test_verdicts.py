"""Limits against predictions and their bands."""

import msgspec
import pytest

from api_schemas.estimate import Percentiles, Performance
from api_schemas.slo import Slo
from service.tuning.verdicts import judge_slo

TIMES = Percentiles(mean=100.0, p50=90.0, p90=150.0, p95=200.0, p99=400.0)
PERFORMANCE = Performance(
    ttft_ms=TIMES,
    tpot_ms=TIMES,
    itl_ms=TIMES,
    e2el_ms=TIMES,
    requests_per_s=10.0,
    output_tokens_per_s=1000.0,
    total_tokens_per_s=2000.0,
    goodput_requests_per_s=10.0,
    preemptions_per_request=0.0,
    kv_cache_usage=0.5,
    running_requests=10.0,
    waiting_requests=0.0,
    saturated=True,
    band={
        "ttft_ms_p50": [80.0, 100.0],
        "ttft_ms_p95": [120.0, 320.0],
        "requests_per_s": [9.0, 11.0],
        "output_tokens_per_s": [500.0, 1500.0],
    },
)


def verdict(**slo: object) -> str:
    return judge_slo(PERFORMANCE, msgspec.convert(slo, Slo))[0].verdict


@pytest.mark.parametrize(
    ("limit_ms", "expected"), [(110, "missed"), (210, "uncertain"), (330, "met")]
)
def test_a_tail_is_judged_by_its_own_band(limit_ms: float, expected: str) -> None:
    """The band of p95 is wider than that of p50, and decides where p95 is limited."""
    limit = {"metric": "ttft", "percentile": 95, "limit_ms": limit_ms}
    assert verdict(targets=[limit]) == expected


def test_a_floor_is_judged_by_the_band_of_its_own_figure() -> None:
    """Requests per second have their own band beside that of tokens."""
    assert verdict(min_requests_per_s=8.5) == "met"
    assert verdict(min_output_tokens_per_s=850) == "uncertain"


def test_nothing_is_certain_without_a_band() -> None:
    """A figure that no band covers is neither met nor missed."""
    limit = {"metric": "e2el", "percentile": 50, "limit_ms": 10}
    assert verdict(targets=[limit]) == "uncertain"
