"""Order of trials by objective, on a real model."""

import msgspec
import pytest

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Objective, TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import PoissonArrivals, Workload
from service.tuning.recommend import understand
from service.tuning.search.finder import assess_all, find_best, size_all
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import rank_key, speed_per_s, throughput_tokens_per_s


def problem(objective: Objective, **changes: object) -> Problem:
    """Return the problem of chat on four H100 for an 8B model."""
    fields: dict[str, object] = {
        "model": ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        "hardware": Hardware(gpu="H100-SXM5-80GB", gpus_per_node=4),
        "workload": Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=8)),
        "objective": objective,
    }
    return understand(TuningRequest(**(fields | changes)))[0]  # type: ignore[arg-type]


def test_what_misses_a_limit_ranks_behind_what_keeps_all() -> None:
    """No merit makes up for a missed limit."""
    posed = problem("throughput")
    trials = assess_all(posed, size_all(posed)[0])
    good = next(trial for trial in trials if trial.meets)

    missed = [msgspec.structs.replace(o, margin=-0.1) for o in good.outcomes]
    bad = msgspec.structs.replace(good, outcomes=tuple(missed), capacity_factor=1e3)

    assert rank_key(posed, good) < rank_key(posed, bad)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_pick_leads_in_its_objective(objective: Objective) -> None:
    """Among plain layouts none is more than a few per cent better in what was asked for."""
    posed = problem(objective)
    found = find_best(posed)
    best = found.reference
    measure = speed_per_s if objective == "latency" else throughput_tokens_per_s

    rivals = [t for t in found.trials if t.meets and t.sized.kv_cache_dtype is None]

    assert best is not None
    assert all(measure(best) >= 0.85 * measure(rival) for rival in rivals)


def test_cost_takes_the_fewest_gpus_that_keep_the_limits() -> None:
    """For cost no other trial within the limits takes fewer GPUs."""
    posed = problem("cost")

    found = find_best(posed)

    assert found.pick is not None
    assert found.pick.gpus == min(trial.gpus for trial in found.trials if trial.meets)


def test_preemptions_are_stepped_away_from() -> None:
    """A pick is never left with more predicted preemptions than the limit allows."""
    posed = problem(
        "throughput",
        slo=Slo(targets=[LatencyTarget(metric="ttft", percentile=95, limit_ms=60_000)]),
    )

    found = find_best(posed)

    assert found.pick is not None
    assert found.pick.performance.preemptions_per_request <= 0.01
