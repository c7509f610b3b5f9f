"""GuideLLM reports: converted to our definitions, one measurement per benchmark."""

from typing import Any

import pytest

from api_schemas.measurement import Statistics
from api_schemas.workload import ClosedLoop, GammaArrivals, PoissonArrivals, Workload
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.guidellm import is_guidellm, read_guidellm


def _metric(mean: float, **percentiles: float) -> dict[str, Any]:
    found = {"mean": mean, "median": percentiles.get("p50", mean), "percentiles": percentiles}
    return {"successful": found, "errored": {}, "incomplete": {}, "total": found}


def _benchmark(strategy: dict[str, Any] | None = None, **metrics: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """Return a benchmark with the keys of GuideLLM 0.8.1: 4 streams, 64 tokens in, 32 out."""
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy or {"type_": "concurrent", "streams": 4}},
        "duration": 8.0,
        "metrics": {
            "request_totals": {"successful": 236, "errored": 0, "incomplete": 4, "total": 240},
            "requests_per_second": _metric(29.5),
            "request_latency": _metric(0.1355, p50=0.13, p90=0.15, p95=0.16, p99=0.2),
            "prompt_token_count": _metric(64.0),
            "output_token_count": _metric(32.0),
            "time_to_first_token_ms": _metric(11.5, p50=11.0, p90=14.0, p95=15.0, p99=21.0),
            "time_per_output_token_ms": _metric(4.23, p50=4.2),
            "inter_token_latency_ms": _metric(4.0, p50=3.9, p90=4.4, p95=4.6, p99=5.0),
            "output_tokens_per_second": _metric(944.0),
            "tokens_per_second": _metric(2832.0),
            **metrics,
        },
    }


def _report(*benchmarks: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "config": {}, "benchmarks": list(benchmarks), "conclusions": []}


def _read(report: dict[str, Any], stated: Workload | None = None) -> list[Any]:
    return read_guidellm(report, stated=stated or Workload(), pointer="/report")


def test_inter_token_latency_is_taken_as_tpot() -> None:
    """What the tool calls time per output token contains the first one; its ITL is our TPOT."""
    report = _report(_benchmark())

    (reading,) = _read(report)

    assert is_guidellm(report)
    assert reading.observed.tpot_ms == Statistics(mean=4.0, p50=3.9, p90=4.4, p95=4.6, p99=5.0)
    assert reading.observed.itl_ms is None
    assert "inter-token latency" in reading.notes[0]


def test_request_latency_is_converted_from_seconds() -> None:
    """Every latency of ours is milliseconds."""
    (reading,) = _read(_report(_benchmark()))

    assert reading.observed.e2el_ms.mean == pytest.approx(135.5)
    assert reading.observed.ttft_ms.mean == 11.5


def test_a_sweep_gives_one_measurement_per_load() -> None:
    """Each benchmark of a report has its own load."""
    loads = _report(
        _benchmark({"type_": "synchronous"}),
        _benchmark({"type_": "concurrent", "streams": 16}),
        _benchmark({"type_": "throughput", "max_concurrency": 64}),
        _benchmark({"type_": "constant", "rate": 30.0}),
        _benchmark({"type_": "poisson", "rate": 30.0}),
    )

    found = [reading.workload.arrivals for reading in _read(loads)]

    assert found == [
        ClosedLoop(max_concurrency=1),
        ClosedLoop(max_concurrency=16),
        ClosedLoop(max_concurrency=64),
        GammaArrivals(requests_per_s=30.0, burstiness=100.0),
        PoissonArrivals(requests_per_s=30.0),
    ]


def test_a_rate_that_was_overrun_is_the_one_achieved() -> None:
    """The Poisson profile can send far faster than asked: what came counts, and is noted."""
    (reading,) = _read(_report(_benchmark({"type_": "poisson", "rate": 5.0})))

    assert reading.workload.arrivals == PoissonArrivals(requests_per_s=29.5)
    assert "5.00/s" in reading.notes[1]


@pytest.mark.parametrize(
    ("benchmark", "pointer"),
    [
        (
            _benchmark(request_totals={"successful": 5, "errored": 2}),
            "/report/benchmarks/0/metrics/request_totals/errored",
        ),
        (
            _benchmark(request_totals={"successful": 0, "errored": 0}),
            "/report/benchmarks/0/metrics/request_totals/successful",
        ),
        (
            _benchmark(
                time_to_first_token_ms=_metric(0.0),
                inter_token_latency_ms=_metric(0.0),
                request_latency=_metric(0.0),
            ),
            "/report/benchmarks/0/metrics/time_to_first_token_ms",
        ),
        (_benchmark({"type_": "replay"}), "/report/benchmarks/0/config/strategy/type_"),
        (_benchmark({"type_": "concurrent"}), "/report/benchmarks/0/config/strategy/streams"),
        (_benchmark(request_latency=7), "/report/benchmarks/0/metrics/request_latency"),
    ],
)
def test_a_report_that_cannot_be_believed_names_its_field(
    benchmark: dict[str, Any], pointer: str
) -> None:
    """Errors, nothing measured, an unknown profile or a wrong kind: refused where it stands."""
    with pytest.raises(InvalidRequest) as refused:
        _read(_report(benchmark))

    assert refused.value.pointer == pointer


def test_a_load_that_is_not_told_may_be_stated() -> None:
    """What the caller says of the load wins over what the report lacks."""
    stated = Workload(arrivals=ClosedLoop(max_concurrency=9), prompt_tokens=70)

    (reading,) = _read(_report(_benchmark({"type_": "replay"})), stated)

    assert reading.workload.arrivals == stated.arrivals
    assert (reading.workload.prompt_tokens, reading.workload.output_tokens) == (70, 32)
