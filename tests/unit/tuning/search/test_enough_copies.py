"""The cheapest answer has as many copies as the simulation asks for, and no more."""

import msgspec

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import BatchArrivals, ClosedLoop, UniformLength, Workload
from service.tuning.recommend import recommend

TAILS = TuningRequest(
    model=ModelRef(id="google/gemma-3-1b-it"),
    hardware=Hardware(gpu="H200-SXM-141GB", gpus_per_node=8),
    workload=Workload(
        prompt_tokens=UniformLength(low=70, high=2500),
        output_tokens=56,
        arrivals=ClosedLoop(max_concurrency=256),
    ),
    slo=Slo(targets=[LatencyTarget(metric="ttft", percentile=95, limit_ms=700)]),
    objective="cost",
)


def test_copies_are_added_where_tails_refuse_what_means_allow() -> None:
    """The closed form finds one copy enough, the simulation asks for more: more it is."""
    one = msgspec.structs.replace(TAILS.hardware, gpus_per_node=1)
    alone = recommend(msgspec.structs.replace(TAILS, hardware=one))

    answer = recommend(TAILS)

    assert not alone.feasible
    assert answer.feasible
    assert 1 < answer.replicas.count < 8


def test_the_layout_that_is_shown_as_chosen_has_the_copies_of_the_answer() -> None:
    """The comparison speaks of the very deployment that is recommended."""
    answer = recommend(TAILS)

    chosen = next(layout for layout in answer.compared if layout.chosen)

    assert (chosen.copies, chosen.gpus) == (answer.replicas.count, answer.replicas.gpus)


def test_copies_are_counted_again_where_a_lower_cap_keeps_the_limits() -> None:
    """Time per token is a question of the cap: more copies than one buy a batch nothing."""
    request = TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="L4", gpus_per_node=4),
        workload=Workload(
            prompt_tokens=500, output_tokens=200, arrivals=BatchArrivals(num_requests=2000)
        ),
        slo=Slo(targets=[LatencyTarget(metric="tpot", percentile=90, limit_ms=80)]),
        objective="cost",
    )

    answer = recommend(request)

    assert answer.feasible
    assert answer.replicas.gpus == 1
