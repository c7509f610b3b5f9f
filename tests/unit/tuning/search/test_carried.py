"""How much of a load a configuration carries."""

import operator
from functools import partial

import pytest

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from api_schemas.workload import PoissonArrivals, Workload
from service.tuning.recommend import understand
from service.tuning.search.carried import first_place, with_carried_capacity
from service.tuning.search.finder import find_best, find_some
from service.tuning.search.problem import Problem
from service.tuning.search.share import scaled, share_of
from service.tuning.search.trial import predict


def problem(requests_per_s: float) -> Problem:
    """Return the problem of chat on two H100 for an 8B model."""
    request = TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=2),
        workload=Workload(preset="chat", arrivals=PoissonArrivals(requests_per_s=requests_per_s)),
    )
    return understand(request)[0]


@pytest.mark.parametrize("guess", [0, 4, 9])
def test_the_first_place_that_carries_is_found_from_any_guess(guess: int) -> None:
    """A bad guess costs more tries, never another answer."""
    for first in range(11):
        assert first_place(partial(operator.le, first), guess, places=10) == first


def test_the_capacity_of_a_pick_is_one_that_the_simulation_carries() -> None:
    """At the stated capacity every limit holds by simulation; looking again changes nothing."""
    posed = problem(4)
    pick = find_best(posed).pick
    assert pick is not None
    assert pick.capacity_factor is not None
    assert pick.capacity_factor > 1
    assert with_carried_capacity(posed, pick) is pick

    share = share_of(posed.filled.workload, copies=pick.copies)
    load = scaled(share, pick.capacity_factor)
    performance, outcomes = predict(posed, pick.sized, load, posed.filled.slo, method="simulation")

    assert not performance.saturated
    assert all(outcome.margin >= 0 for outcome in outcomes)


def test_a_step_finds_what_keeps_the_limits_by_simulation() -> None:
    """What is found first is simulated and within the limits, like the best."""
    found = find_some(problem(4)).pick

    assert found is not None
    assert found.method == "simulation"
    assert found.meets
