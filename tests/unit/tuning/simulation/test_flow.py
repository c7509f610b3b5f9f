"""What an engine serves on average: runs that end, and services that go on."""

import msgspec
import pytest

from api_schemas.estimate import EstimateRequest, Performance
from service.tuning.estimate import estimate

_ANSWERS = {"kind": "lognormal", "mean": 4000, "p99": 20_000}


def performance(max_num_seqs: int = 256, **arrivals: object) -> Performance:
    """Return what gpt-oss-120b on one H200 does with long answers at one request a second."""
    body = {
        "model": {"id": "openai/gpt-oss-120b"},
        "hardware": {"gpu": "H200"},
        "engine": {"config": {"max_num_seqs": max_num_seqs}},
        "workload": {
            "prompt_tokens": 500,
            "output_tokens": _ANSWERS,
            "arrivals": {"kind": "poisson", "requests_per_s": 0.5} | arrivals,
        },
    }
    found = estimate(msgspec.convert(body, EstimateRequest)).performance
    assert found is not None
    return found


def test_a_service_that_keeps_up_serves_what_is_offered() -> None:
    """However long the last answers take, they lower no throughput."""
    found = performance()

    assert not found.saturated
    assert found.requests_per_s == 0.5


def test_requests_in_flight_follow_littles_law() -> None:
    """Running requests are the rate times the time that a request takes."""
    found = performance()
    mean_s = found.e2el_ms.mean / 1000

    assert found.running_requests == pytest.approx(0.5 * mean_s, rel=0.01)


def test_a_run_that_ends_counts_its_beginning_and_end() -> None:
    """A stated number of requests is measured as a benchmark does, from first to last token."""
    found = performance(num_requests=100)

    assert found.requests_per_s < 0.45


def test_a_service_that_cannot_keep_up_serves_what_it_can() -> None:
    """Saturated engines are full, and serve less than is offered."""
    found = performance(max_num_seqs=8)

    assert found.saturated
    assert found.requests_per_s < 0.45
    assert found.running_requests == pytest.approx(8, rel=0.02)
