"""What is remembered across requests and shortened in the search says what the long way says."""

import msgspec
import pytest

from api_schemas.recommendation import TuningRequest
from api_schemas.slo import LatencyTarget
from service.tuning.limits_kept import keeps_latencies
from service.tuning.performance import MeanAtRates, load_shape, mean_performance
from service.tuning.recommend import understand
from service.tuning.search import finder
from service.tuning.search.sizing import Sized
from service.tuning.search.trial import prepared

BODY = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": "L40S", "gpus_per_node": 2},
    "workload": {"preset": "chat", "arrivals": {"kind": "poisson", "requests_per_s": 3.0}},
}
CLOSED = {"kind": "closed_loop", "max_concurrency": 5}


@pytest.mark.parametrize("arrivals", [CLOSED, {"kind": "poisson", "requests_per_s": 90.0}])
def test_layouts_are_sized_for_lengths_and_not_for_loads(arrivals: dict[str, object]) -> None:
    """The same lengths at another load give the same layouts, computed anew or remembered."""
    workload = {"preset": "chat", "arrivals": arrivals}
    first, other = (
        understand(msgspec.convert(body, TuningRequest))[0]
        for body in (BODY, BODY | {"workload": workload})
    )
    sized, misfits = finder.size_all(first)
    again = finder._size_all(other)
    assert sized
    assert (tuple(sized), tuple(misfits)) == again


@pytest.mark.parametrize("metric", ["ttft", "tpot", "itl", "e2el"])
@pytest.mark.parametrize("percentile", [50, 95, "mean"])
def test_the_short_way_keeps_the_limits_that_the_whole_prediction_keeps(
    metric: str, percentile: int | str
) -> None:
    """Verdicts on rates agree with those on the performance at these rates."""
    problem, _ = understand(msgspec.convert(BODY, TuningRequest))
    sized = next(one for one in finder.size_all(problem)[0] if isinstance(one, Sized))
    prediction = prepared(problem, sized)
    load = load_shape(problem.filled.workload, replicas=1)
    means = MeanAtRates(prediction, load=load)
    for rate in (0.01, 1.0, 8.0, 60.0, 1e4):
        at_rate = msgspec.structs.replace(load, requests_per_s=rate)
        performance = mean_performance(prediction, load=at_rate)
        for limit_ms in (3.0, 14.0, 25.0, 80.0, 400.0, 6000.0):
            body = {"metric": metric, "percentile": percentile, "limit_ms": limit_ms}
            targets = [msgspec.convert(body, LatencyTarget)]
            whole = not performance.saturated and keeps_latencies(performance, targets)
            assert means.keeps(rate, targets) == whole
