"""The load of one replica."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    LognormalLength,
    PoissonArrivals,
    Trace,
    Users,
    Workload,
)
from workers.traffic import make_load, mean_request_tokens, share_of, write_requests


@pytest.mark.parametrize(
    ("arrivals", "share"),
    [
        (PoissonArrivals(requests_per_s=8.0), PoissonArrivals(requests_per_s=2.0)),
        (
            GammaArrivals(requests_per_s=8.0, burstiness=0.5),
            GammaArrivals(requests_per_s=2.0, burstiness=0.5),
        ),
        (ClosedLoop(max_concurrency=9), ClosedLoop(max_concurrency=3)),
        (
            ClosedLoop(max_concurrency=9, num_requests=21),
            ClosedLoop(max_concurrency=3, num_requests=6),
        ),
        (BatchArrivals(num_requests=8), BatchArrivals(num_requests=2)),
    ],
)
def test_replicas_share_the_load(arrivals: Arrivals, share: Arrivals) -> None:
    """Each of four copies gets a quarter, rounded up so that nothing is left out."""
    assert share_of(arrivals, replicas=4) == share


def test_a_trace_is_dealt_out_in_turn() -> None:
    """Of two copies the first gets every other request, at its own time."""
    trace = Trace(at_s=[0, 1, 2], prompt_tokens=[1, 2, 3], output_tokens=[4, 5, 6])

    share = share_of(trace, replicas=2)

    assert share == Trace(at_s=[0, 2], prompt_tokens=[1, 3], output_tokens=[4, 6])


@pytest.mark.parametrize("arrivals", [None, Users(users=10)])
def test_a_load_without_requests_is_refused(arrivals: Arrivals | None) -> None:
    """People must have been converted to requests before, and something must be offered."""
    with pytest.raises(ValueError, match="arrivals"):
        share_of(arrivals, replicas=1)


@given(seed=st.integers(0, 2000), count=st.integers(1, 40), longest=st.integers(8, 300))
def test_no_drawn_request_is_longer_than_the_model_allows(
    seed: int, count: int, longest: int
) -> None:
    """Whatever the lengths, prompt and output together fit, and nothing is empty."""
    workload = Workload(
        prompt_tokens=LognormalLength(mean=100, p99=900),
        output_tokens=LognormalLength(mean=50, p99=400),
    )
    load = make_load(
        workload, PoissonArrivals(requests_per_s=1), num_requests=count, seed=seed,
        max_model_len=longest,
    )  # fmt: skip

    assert load.requests is not None
    assert len(load.requests) == count
    for request in load.requests:
        assert request.prompt_tokens >= 1
        assert request.output_tokens >= 1
        assert request.prompt_tokens + request.output_tokens <= longest


def test_equal_seeds_draw_equal_requests_and_others_do_not() -> None:
    """A trial can be repeated, and two trials differ."""
    workload = Workload(prompt_tokens=LognormalLength(mean=100, p99=900), output_tokens=8)

    def drawn(seed: int) -> object:
        load = make_load(
            workload, ClosedLoop(max_concurrency=2), num_requests=9, seed=seed, max_model_len=4096
        )
        return load.requests

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_file_shares_its_prefix_within_a_trial_only(tmp_path: Path) -> None:
    """Requests of one trial begin alike, and share nothing else, nor anything with another."""
    workload = Workload(
        prompt_tokens=LognormalLength(mean=300, p99=900),
        output_tokens=8,
        shared_prefix_tokens=64,
    )
    rows = []
    for seed in (1, 2):
        load = make_load(
            workload, ClosedLoop(max_concurrency=2), num_requests=5, seed=seed, max_model_len=4096
        )
        path = tmp_path / f"{seed}.jsonl"
        write_requests(load, path)
        rows.append([json.loads(line) for line in path.read_text().splitlines()])

    first, second = ([row["hash_ids"] for row in trial] for trial in rows)
    assert len({ids[0] for ids in first}) == 1
    assert first[0][0] != second[0][0]
    own = [identifier for ids in first for identifier in ids[1:]]
    assert len(own) == len(set(own))
    assert not set(own) & {identifier for ids in second for identifier in ids}
    for row in rows[0]:
        assert len(row["hash_ids"]) * 64 >= row["input_length"]


def test_mean_tokens_count_prompt_and_output() -> None:
    """What a request holds of the KV cache at its end, on average."""
    assert mean_request_tokens(Workload(prompt_tokens=64, output_tokens=192)) == 256
    trace = Trace(at_s=[0, 1], prompt_tokens=[10, 30], output_tokens=[5, 5])
    assert mean_request_tokens(Workload(arrivals=trace)) == 25
