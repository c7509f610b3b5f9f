"""What a server with a length limit serves of a workload."""

import numpy as np
import pytest

from api_schemas.workload import (
    FixedLength,
    LognormalLength,
    PoissonArrivals,
    SampleLengths,
    Trace,
    Workload,
)
from service.tuning.accepted_load import accepted_workload
from service.tuning.lengths import max_tokens, mean_tokens

LOAD = PoissonArrivals(requests_per_s=1)


def test_a_workload_that_fits_is_left_alone() -> None:
    """Where the longest request fits, nothing changes."""
    workload = Workload(prompt_tokens=1000, output_tokens=FixedLength(tokens=200), arrivals=LOAD)

    assert accepted_workload(workload, max_model_len=1200) is workload


@pytest.mark.parametrize("limit", [512, 2048, 8192, 40_000])
def test_nothing_served_is_longer_than_the_limit(limit: int) -> None:
    """Longest prompt and longest answer together never exceed the limit."""
    workload = Workload(
        prompt_tokens=LognormalLength(mean=400, p99=4000),
        output_tokens=LognormalLength(mean=300, p99=3000),
        arrivals=LOAD,
    )

    served = accepted_workload(workload, max_model_len=limit)

    assert served.prompt_tokens is not None
    assert served.output_tokens is not None
    assert max_tokens(served.prompt_tokens) + max_tokens(served.output_tokens) <= limit


def test_refused_prompts_leave_shorter_ones() -> None:
    """Cutting the tail lowers the mean of what is served."""
    prompts = LognormalLength(mean=4000, p99=40_000)
    workload = Workload(prompt_tokens=prompts, output_tokens=100, arrivals=LOAD)

    served = accepted_workload(workload, max_model_len=8192)

    assert served.prompt_tokens is not None
    assert mean_tokens(served.prompt_tokens) < 4000


def test_a_trace_loses_what_is_refused_and_keeps_its_rows_together() -> None:
    """Requests above the limit go, answers end at it, times stay with their request."""
    trace = Trace(at_s=[0.0, 1.0, 2.0], prompt_tokens=[10, 500, 90], output_tokens=[50, 1, 50])
    workload = Workload(arrivals=trace)

    served = accepted_workload(workload, max_model_len=100)

    assert served.arrivals == Trace(at_s=[0.0, 2.0], prompt_tokens=[10, 90], output_tokens=[50, 10])
    assert served.prompt_tokens == SampleLengths(tokens=[10, 90])


def test_all_too_long_is_left_for_others_to_judge() -> None:
    """When no request fits there is nothing to cut down to."""
    workload = Workload(prompt_tokens=5000, output_tokens=10, arrivals=LOAD)

    assert accepted_workload(workload, max_model_len=1000) is workload


def test_the_same_workload_is_cut_the_same_way() -> None:
    """Cutting draws no random numbers."""
    workload = Workload(
        prompt_tokens=LognormalLength(mean=400, p99=4000), output_tokens=300, arrivals=LOAD
    )

    first = accepted_workload(workload, max_model_len=1024)
    second = accepted_workload(workload, max_model_len=1024)

    assert first == second
    assert isinstance(first.prompt_tokens, SampleLengths)
    assert np.all(np.diff(first.prompt_tokens.tokens) >= 0)


def test_a_long_tail_of_prompts_does_not_cut_every_answer() -> None:
    """Nine of ten prompts leave room for the longest answer: few of them are cut."""
    answers = LognormalLength(mean=3000, p99=6000)
    workload = Workload(
        prompt_tokens=LognormalLength(mean=1000, p99=6000), output_tokens=answers, arrivals=LOAD
    )

    served = accepted_workload(workload, max_model_len=8192)

    assert served.output_tokens is not None
    assert mean_tokens(served.output_tokens) > 0.95 * mean_tokens(answers)


def test_answers_end_where_prompts_of_one_length_leave_no_room() -> None:
    """7000 of 8192 tokens are asked: 1192 are left, and every request is served."""
    workload = Workload(
        prompt_tokens=7000, output_tokens=LognormalLength(mean=500, p99=2000), arrivals=LOAD
    )

    served = accepted_workload(workload, max_model_len=8192)

    assert served.prompt_tokens == 7000
    assert served.output_tokens is not None
    assert max_tokens(served.output_tokens) == 1192
