"""The requests of a simulated run."""

import numpy as np
import pytest

from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    Lengths,
    PoissonArrivals,
    Trace,
    UniformLength,
    Users,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.simulation.traffic import draw_traffic

PROMPT = UniformLength(low=80, high=120)


def workload(arrivals: Arrivals, prompt: Lengths = PROMPT, output: Lengths = 50) -> Workload:
    return Workload(prompt_tokens=prompt, output_tokens=output, arrivals=arrivals)


def test_a_closed_loop_runs_ten_waves() -> None:
    """Ten requests per client, as InferenceX does."""
    traffic = draw_traffic(workload(ClosedLoop(max_concurrency=16)))

    assert len(traffic.prompts) == 160
    assert traffic.concurrency == 16
    assert traffic.waves == 10


@pytest.mark.parametrize(
    ("stated", "clients", "number"), [(40, 16, 40), (17, 16, 17), (5, 5, 5), (320, 16, 320)]
)
def test_a_loop_may_state_its_requests(stated: int, clients: int, number: int) -> None:
    """A run that is mostly its own beginning and end is simulated as long as it was."""
    traffic = draw_traffic(workload(ClosedLoop(max_concurrency=16, num_requests=stated)))

    assert (traffic.concurrency, len(traffic.prompts)) == (clients, number)
    assert traffic.waves == pytest.approx(number / clients)
    assert traffic.weights.sum() == pytest.approx(1)


def test_a_large_loop_runs_fewer_waves_and_weighs_the_first_one_down() -> None:
    """The first wave keeps the tenth of the weight that it has in ten waves."""
    traffic = draw_traffic(workload(ClosedLoop(max_concurrency=512)))

    assert len(traffic.prompts) == 4 * 512
    assert traffic.weights.sum() == pytest.approx(1)
    assert traffic.weights[:512].sum() == pytest.approx(0.1)


def test_answers_of_one_length_differ_a_little_in_a_loop_only() -> None:
    """A loop is never exactly in step; a batch keeps the length it is given."""
    loop = draw_traffic(workload(ClosedLoop(max_concurrency=8), output=400))
    batch = draw_traffic(workload(BatchArrivals(num_requests=8), output=400))

    assert set(loop.outputs) <= set(range(390, 411))
    assert len(set(loop.outputs)) > 1
    assert set(batch.outputs) == {400}


@pytest.mark.parametrize(
    "arrivals",
    [PoissonArrivals(requests_per_s=4), GammaArrivals(requests_per_s=4, burstiness=0.2)],
)
def test_an_open_loop_keeps_its_rate(arrivals: Arrivals) -> None:
    """The arrivals of a run come out at the offered rate."""
    traffic = draw_traffic(workload(arrivals))

    assert len(traffic.arrivals) / traffic.arrivals[-1] == pytest.approx(4, rel=0.05)
    assert (np.diff(traffic.arrivals) >= 0).all()


def test_replicas_share_a_load() -> None:
    """Each of two engines sees half the clients, the requests, the rate."""
    assert draw_traffic(workload(ClosedLoop(max_concurrency=16)), replicas=2).concurrency == 8
    stated = draw_traffic(workload(ClosedLoop(max_concurrency=4, num_requests=10)), replicas=2)
    assert (stated.concurrency, len(stated.prompts)) == (2, 5)
    assert len(draw_traffic(workload(BatchArrivals(num_requests=16)), replicas=2).prompts) == 8
    rate = draw_traffic(workload(PoissonArrivals(requests_per_s=4)), replicas=2)
    assert rate.offered_requests_per_s == 2


def test_a_trace_is_replayed_in_order() -> None:
    """Arrivals are sorted and start at zero; each keeps its lengths."""
    trace = Trace(at_s=[5.0, 3.0], prompt_tokens=[10, 20], output_tokens=[1, 2])

    traffic = draw_traffic(Workload(arrivals=trace))

    assert traffic.arrivals.tolist() == [0.0, 2.0]
    assert traffic.prompts.tolist() == [20, 10]


def test_a_trace_with_lists_of_different_lengths_is_refused() -> None:
    """Which entry would be missing cannot be guessed."""
    trace = Trace(at_s=[0.0], prompt_tokens=[1, 2], output_tokens=[1])

    with pytest.raises(InvalidRequest, match="equally long"):
        draw_traffic(Workload(arrivals=trace))


@pytest.mark.parametrize(
    "load",
    [
        Workload(prompt_tokens=1, output_tokens=1),
        Workload(arrivals=ClosedLoop(max_concurrency=1)),
        Workload(prompt_tokens=1, output_tokens=1, arrivals=Users(users=3)),
    ],
)
def test_an_unfinished_workload_is_refused(load: Workload) -> None:
    """Arrivals and lengths must be there, and users converted."""
    with pytest.raises(InvalidRequest):
        draw_traffic(load)
