"""A cap that the simulation refuses is stepped back, not given up."""

from functools import cache

import pytest

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TargetEngine, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import BatchArrivals, Workload
from service.tuning.recommend import understand
from service.tuning.search.finder import find_best
from service.tuning.search.problem import Problem
from service.tuning.search.trial import Trial


@cache
def picked(limit_ms: float) -> tuple[Problem, Trial]:
    """Return the pick for a batch on three GPUs under a limit of the time between tokens."""
    problem, _ = understand(
        TuningRequest(
            model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
            hardware=Hardware(gpu="RTX-PRO-6000-MaxQ", gpus_per_node=3),
            engine=TargetEngine(version="0.20.0"),
            workload=Workload(preset="batch"),
            slo=Slo(targets=[LatencyTarget(metric="itl", percentile=95, limit_ms=limit_ms)]),
        )
    )
    found = find_best(problem)
    assert found.pick is not None
    return found.problem, found.pick


@pytest.mark.parametrize("limit_ms", [60.3, 80.0, 90.4])
def test_a_limit_between_tokens_is_kept_with_a_lower_cap(limit_ms: float) -> None:
    """The mean keeps 90.4 ms with 144 requests at once, their tail does not; fewer keep both."""
    _, pick = picked(limit_ms)

    assert pick.meets
    assert pick.sized.admission.limited_by == "slo"


def test_more_time_between_tokens_buys_throughput() -> None:
    """Each looser limit carries at least what the tighter one did."""
    carried = [picked(limit)[1].output_tokens_per_s for limit in (60.3, 80.0, 90.4)]

    assert carried == sorted(carried)


@pytest.mark.parametrize("limit_ms", [25.0, 28.0, 29.0])
def test_layouts_that_only_their_cap_makes_slow_are_looked_at(limit_ms: float) -> None:
    """Four GPUs together are the best layout; three slower ones were ranked before it.

    With the looser limits one of those keeps them too, with one or two requests at once: at a
    ninth of the throughput it was picked.
    """
    problem, _ = understand(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen2.5-32B-Instruct"),
            hardware=Hardware(gpu="RTX-PRO-6000-MaxQ", gpus_per_node=4),
            workload=Workload(preset="chat", arrivals=BatchArrivals(num_requests=300)),
            slo=Slo(targets=[LatencyTarget(metric="tpot", percentile=50, limit_ms=limit_ms)]),
            objective="throughput",
        )
    )

    pick = find_best(problem).pick

    assert pick is not None
    assert pick.sized.topology.tensor_parallel_size == 4
    assert pick.meets
