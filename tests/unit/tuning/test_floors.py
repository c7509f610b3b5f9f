"""Floors of throughput: what load they mean, and when they are reached."""

from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import Advice, TuningRequest
from api_schemas.slo import Slo
from api_schemas.workload import PoissonArrivals, Workload
from service.tuning.presets import fill_workload
from service.tuning.recommend import recommend


def _advise(slo: Slo, *, requests_per_s: float | None = None, gpus: int = 1) -> Advice:
    arrivals = None
    if requests_per_s is not None:
        arrivals = PoissonArrivals(requests_per_s=requests_per_s)
    return recommend(
        TuningRequest(
            model=ModelRef(id="Qwen/Qwen3-8B"),
            hardware=Hardware(gpu="H100-SXM5-80GB", gpus_per_node=gpus),
            workload=Workload(preset="chat", arrivals=arrivals),
            slo=slo,
        )
    )


def test_a_floor_stands_for_the_load_that_was_not_stated() -> None:
    """Five requests a second are asked for, so five arrive: one H100 answers them."""
    advice = _advise(Slo(min_requests_per_s=5))

    assert advice.feasible
    assert advice.request.workload.arrivals == PoissonArrivals(requests_per_s=5)


def test_a_load_that_is_served_in_full_reaches_its_own_rate() -> None:
    """The last answers of a finite run end after the last arrival; that is no miss."""
    assert _advise(Slo(min_requests_per_s=5), requests_per_s=5).feasible


def test_a_floor_beyond_the_hardware_asks_for_more_of_it() -> None:
    """Two hundred requests a second are too many for one H100: the way out is more GPUs."""
    advice = _advise(Slo(min_requests_per_s=200))

    assert not advice.feasible
    assert advice.nearest is not None
    assert advice.nearest.hardware is not None


def test_a_floor_of_tokens_counts_the_answers_it_takes() -> None:
    """Two thousand tokens a second are ten answers of two hundred."""
    filled = fill_workload(
        Workload(preset="chat", output_tokens=200), Slo(min_output_tokens_per_s=2000)
    )

    assert filled.workload.arrivals == PoissonArrivals(requests_per_s=10)
    assert any("least that is asked for" in sentence for sentence in filled.assumptions)
