"""Results of `vllm bench serve`: read as they are, or refused with the field named."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_schemas.measurement import Statistics
from api_schemas.workload import (
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
    SampleLengths,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.reading import Reading
from service.tuning.measurements.vllm_bench import is_vllm_bench, read_vllm_bench

_RECORDED = json.loads((Path(__file__).parent / "vllm_bench.json").read_text("utf-8"))["result"]


def _read(stated: Workload | None = None, **changes: Any) -> Reading:  # noqa: ANN401  # JSON
    report = {**_RECORDED, **changes}
    return read_vllm_bench(report, stated=stated or Workload(), pointer="/report")


def test_a_recorded_result_is_read_whole() -> None:
    """Load, lengths, percentiles and rates come from the file of a real run."""
    reading = _read()

    assert is_vllm_bench(_RECORDED)
    assert reading.workload == Workload(
        prompt_tokens=128, output_tokens=32, arrivals=ClosedLoop(max_concurrency=8)
    )
    assert reading.observed.ttft_ms == Statistics(
        mean=165.0685947500179,
        p50=117.3889504999579,
        p90=370.30169100005423,
        p95=415.25350120016344,
        p99=476.356158060039,
    )
    assert reading.observed.output_tokens_per_s == 882.7560363451885
    assert reading.observed.completed == 32


@pytest.mark.parametrize(
    ("changes", "arrivals"),
    [
        ({"request_rate": "inf", "max_concurrency": None}, BatchArrivals(num_requests=32)),
        ({"request_rate": "inf", "max_concurrency": 64}, ClosedLoop(max_concurrency=32)),
        ({"request_rate": 4.0, "max_concurrency": None}, PoissonArrivals(requests_per_s=4.0)),
        (
            {"request_rate": 4.0, "burstiness": 0.5, "max_concurrency": None},
            GammaArrivals(requests_per_s=4.0, burstiness=0.5),
        ),
    ],
)
def test_the_load_follows_from_rate_and_cap(changes: dict[str, Any], arrivals: object) -> None:
    """The text "inf" means no pause: a closed loop under a cap, else all at once."""
    assert _read(**changes).workload.arrivals == arrivals


def test_a_rate_under_a_cap_needs_the_caller() -> None:
    """Which of the two limited the load cannot be told, so it must be stated."""
    with pytest.raises(InvalidRequest) as refused:
        _read(request_rate=4.0, max_concurrency=8)
    assert refused.value.pointer == "/report/max_concurrency"

    stated = Workload(arrivals=ClosedLoop(max_concurrency=8))
    assert _read(stated, request_rate=4.0, max_concurrency=8).workload.arrivals == stated.arrivals


def test_the_median_stands_for_the_50th_percentile() -> None:
    """Older files name the median alone."""
    report = {name: value for name, value in _RECORDED.items() if not name.startswith("p50")}

    reading = read_vllm_bench(report, stated=Workload(), pointer="/report")

    assert reading.observed.tpot_ms is not None
    assert reading.observed.tpot_ms.p50 == _RECORDED["median_tpot_ms"]


def test_detailed_lengths_are_kept_as_they_were() -> None:
    """A file with every length gives their distribution, not only the mean."""
    reading = _read(input_lens=[100, 156] * 16, output_lens=[32] * 32)

    assert reading.workload.prompt_tokens == SampleLengths(tokens=[100, 156] * 16)
    assert reading.workload.output_tokens == 32


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"failed": 3}, "/report/failed"),
        ({"completed": 0, "num_prompts": 0}, "/report/completed"),
        ({"completed": 30}, "/report/completed"),
        ({"request_rate": "soon"}, "/report/request_rate"),
        ({"request_rate": None}, "/report/request_rate"),
        ({"request_rate": 0}, "/report/request_rate"),
        ({"mean_ttft_ms": "fast"}, "/report/mean_ttft_ms"),
        ({"p99_e2el_ms": -1}, "/report/p99_e2el_ms"),
        ({"total_output_tokens": None}, "/report/total_output_tokens"),
        ({"total_input_tokens": 0}, "/report/total_input_tokens"),
        ({"ramp_up_strategy": "linear"}, "/report/ramp_up_strategy"),
        ({name: 0.0 for name in _RECORDED if name.endswith("_tpot_ms")}, "/report/mean_tpot_ms"),
        ({name: 0.0 for name in _RECORDED if name.endswith("_ms")}, "/report/mean_ttft_ms"),
    ],
)
def test_a_run_that_cannot_be_believed_names_its_field(
    changes: dict[str, Any], pointer: str
) -> None:
    """Failed requests, nothing measured, or a value of another kind: refused where it stands."""
    with pytest.raises(InvalidRequest) as refused:
        _read(**changes)

    assert refused.value.pointer == pointer
