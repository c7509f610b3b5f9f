"""Which layouts the simulation gets to see."""

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import PoissonArrivals, UniformLength, Workload
from service.tuning.recommend import recommend


def cheapest(*, gpus: int, limit_ms: float) -> TuningRequest:
    """Return a request whose limit one GPU keeps by the closed form, which knows no tails."""
    return TuningRequest(
        model=ModelRef(id="microsoft/Phi-3.5-MoE-instruct"),
        hardware=Hardware(gpu="B200", gpus_per_node=gpus),
        workload=Workload(
            prompt_tokens=UniformLength(low=81, high=216),
            output_tokens=797,
            arrivals=PoissonArrivals(requests_per_s=0.0268, num_requests=100),
            shared_prefix_tokens=100,
        ),
        slo=Slo(targets=[LatencyTarget(metric="tpot", percentile=95, limit_ms=limit_ms)]),
        objective="cost",
    )


def test_what_ranks_before_the_first_that_holds_is_looked_at() -> None:
    """The widest layout holds, but a narrower one is cheaper: it is not passed over."""
    eight, sixteen = (recommend(cheapest(gpus=gpus, limit_ms=4.1)) for gpus in (8, 16))

    assert eight.feasible
    assert sixteen.feasible
    assert sixteen.replicas.gpus == eight.replicas.gpus < 8


def test_no_copies_are_added_that_bring_no_room() -> None:
    """The limit is tight for a lonely request: eight copies keep it no better than one."""
    answer = recommend(cheapest(gpus=8, limit_ms=4.5))

    assert answer.feasible
    assert answer.replicas.count == 1


def test_a_second_layout_is_tried_where_tails_alone_are_in_the_way() -> None:
    """Tails of an idle machine are a fixed multiple by the closed form: no reason to give up."""
    request = TuningRequest(
        model=ModelRef(id="moonshotai/Kimi-K2-Instruct"),
        hardware=Hardware(gpu="GB300", gpus_per_node=8),
        workload=Workload(preset="realtime"),
        slo=Slo(
            targets=[
                LatencyTarget(metric="ttft", percentile=99, limit_ms=149.3),
                LatencyTarget(metric="itl", percentile=95, limit_ms=23.1),
            ],
            min_requests_per_s=0.027,
        ),
        objective="latency",
    )

    assert recommend(request).feasible
