"""The closed form of open loops beside the simulation of them."""

import pytest

from api_schemas.estimate import Performance
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from api_schemas.slo import Slo
from api_schemas.workload import Arrivals, BatchArrivals, PoissonArrivals, Trace, Workload
from service.tuning.recommend import understand
from service.tuning.search.finder import size_all
from service.tuning.search.trial import try_out


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "L4"])
@pytest.mark.parametrize(("prompt", "output"), [(200, 50), (1000, 20), (4000, 100)])
def test_equally_long_requests_of_an_open_loop_do_not_keep_in_step(
    gpu: str, prompt: int, output: int
) -> None:
    """A lonely prompt waits for itself alone, however many of its length fit a step."""
    request = TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu=gpu),
        workload=Workload(
            prompt_tokens=prompt,
            output_tokens=output,
            arrivals=PoissonArrivals(requests_per_s=0.05),
        ),
        slo=Slo(),
    )
    problem, _ = understand(request)
    sized = size_all(problem)[0][0]

    closed = try_out(problem, sized, copies=1).performance
    simulated = try_out(problem, sized, copies=1, method="simulation").performance

    assert closed.ttft_ms.mean == pytest.approx(simulated.ttft_ms.mean, rel=0.3)
    assert closed.e2el_ms.mean == pytest.approx(simulated.e2el_ms.mean, rel=0.15)


def test_a_trace_of_one_moment_is_a_batch() -> None:
    """Requests that are recorded at the same time have no rate, and end."""
    trace = Trace(at_s=[3.0] * 40, prompt_tokens=[500] * 40, output_tokens=[100] * 40)

    burst, batch = (closed_form_of(one) for one in (trace, BatchArrivals(num_requests=40)))

    assert burst.output_tokens_per_s == pytest.approx(batch.output_tokens_per_s, rel=0.1)
    assert burst.e2el_ms.mean == pytest.approx(batch.e2el_ms.mean, rel=0.1)


def closed_form_of(arrivals: Arrivals) -> Performance:
    """Return the closed form of prompts of 500 and answers of 100 tokens."""
    request = TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="H100-SXM5-80GB"),
        workload=Workload(prompt_tokens=500, output_tokens=100, arrivals=arrivals),
    )
    problem, _ = understand(request)
    return try_out(problem, size_all(problem)[0][0], copies=1).performance
