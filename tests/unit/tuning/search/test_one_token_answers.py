"""Answers of one token: classification, moderation, scoring."""

import pytest

from api_schemas.estimate import Performance
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.recommendation import TuningRequest
from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import PoissonArrivals, Workload
from service.tuning.recommend import recommend, understand
from service.tuning.search.finder import size_all
from service.tuning.search.trial import try_out


def request(*, prompt: int, output: int, rate: float | None = None) -> TuningRequest:
    """Return a request for one H100 with limits on the first token and between tokens."""
    return TuningRequest(
        model=ModelRef(id="meta-llama/Llama-3.1-8B-Instruct"),
        hardware=Hardware(gpu="H100-SXM5-80GB"),
        workload=Workload(
            prompt_tokens=prompt,
            output_tokens=output,
            arrivals=None if rate is None else PoissonArrivals(requests_per_s=rate),
        ),
        slo=Slo(
            targets=[
                LatencyTarget(metric="ttft", percentile=95, limit_ms=400),
                LatencyTarget(metric="tpot", percentile=95, limit_ms=50),
            ]
        ),
    )


@pytest.mark.parametrize("prompt", [200, 4000])
def test_they_carry_no_less_than_answers_of_two_tokens(prompt: int) -> None:
    """A token less is work less: the load within the limits is not lower."""
    one, two = (recommend(request(prompt=prompt, output=output)) for output in (1, 2))

    figures = one.estimate.performance, two.estimate.performance
    assert figures[0] is not None
    assert figures[1] is not None
    assert figures[0].requests_per_s >= 0.8 * figures[1].requests_per_s
    assert (one.config.max_num_seqs or 0) >= 0.8 * (two.config.max_num_seqs or 0)


@pytest.mark.parametrize("rate", [0.001, 0.1, 1.0])
def test_their_first_token_comes_as_soon_as_that_of_longer_answers(rate: float) -> None:
    """The closed form knows that the prompt alone decides; no limit between tokens applies."""
    one, two = (closed_form_of(output=output, rate=rate) for output in (1, 2))

    assert one.ttft_ms.mean == pytest.approx(two.ttft_ms.mean, rel=0.1)
    assert one.tpot_ms.p95 == one.itl_ms.p99 == 0.0


def closed_form_of(*, output: int, rate: float) -> Performance:
    """Return the closed form of one copy with prompts of 4,000 tokens."""
    problem, _ = understand(request(prompt=4000, output=output, rate=rate))
    return try_out(problem, size_all(problem)[0][0], copies=1).performance
