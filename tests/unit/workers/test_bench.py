"""The benchmark client's command, and its result held to account."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    Lengths,
    LognormalLength,
    PoissonArrivals,
    Trace,
    UniformLength,
    Workload,
)
from workers.bench import RejectedResult, bench_command, read_result
from workers.traffic import Load, make_load

RECORDED = Path(__file__).parents[2] / "fakes" / "recorded" / "bench-0.32.0.json"


def _load(
    arrivals: Arrivals,
    *,
    prompt: Lengths = 64,
    output: Lengths = 192,
    prefix: int | None = None,
    num_requests: int = 3,
) -> Load:
    workload = Workload(prompt_tokens=prompt, output_tokens=output, shared_prefix_tokens=prefix)
    return make_load(workload, arrivals, num_requests=num_requests, seed=7, max_model_len=4096)


def _command(load: Load, slo: Slo | None = None) -> list[str]:
    return bench_command(
        load,
        executable="/env/bin/vllm",
        base_url="http://127.0.0.1:1",
        served_name="tiny",
        tokenizer="/models/tiny",
        slo=slo,
        dataset=Path("/work/data.jsonl"),
        result=Path("/work/result.json"),
    )


def _option(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command else None


def _result(**changes: object) -> bytes:
    raw = json.loads(RECORDED.read_text())["result"]
    raw |= {"completed": 3, "num_prompts": 3} | changes
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("arrivals", "options"),
    [
        (ClosedLoop(max_concurrency=16), {"--max-concurrency": "16", "--request-rate": None}),
        (PoissonArrivals(requests_per_s=2.5), {"--request-rate": "2.5", "--burstiness": None}),
        (
            GammaArrivals(requests_per_s=2.0, burstiness=0.5),
            {"--request-rate": "2.0", "--burstiness": "0.5"},
        ),
        (BatchArrivals(num_requests=3), {"--request-rate": None, "--max-concurrency": None}),
    ],
)
def test_arrivals_become_the_clients_options(
    arrivals: Arrivals, options: dict[str, str | None]
) -> None:
    """Open and closed loops are played as vLLM's own benchmark plays them."""
    command = _command(_load(arrivals))

    assert {name: _option(command, name) for name in options} == options


def test_every_run_checks_readiness_and_names_its_seed() -> None:
    """Without the check a dead server reads as the best result; equal seeds would hit the cache."""
    command = _command(_load(ClosedLoop(max_concurrency=1)))

    assert int(_option(command, "--ready-check-timeout-sec") or 0) > 0
    assert _option(command, "--seed") == "7"
    assert "--ignore-eos" in command
    assert "--save-detailed" in command


def test_fixed_lengths_with_a_shared_prefix_are_left_to_the_client() -> None:
    """The prefix is part of the prompt: the random part is what is left of it."""
    command = _command(_load(ClosedLoop(max_concurrency=1), prefix=48))

    assert _option(command, "--random-prefix-len") == "48"
    assert _option(command, "--random-input-len") == "16"
    assert _option(command, "--random-output-len") == "192"


def test_uniform_lengths_become_a_middle_and_a_range() -> None:
    """Prompt and output have ranges of their own."""
    load = _load(
        ClosedLoop(max_concurrency=1),
        prompt=UniformLength(low=50, high=150),
        output=UniformLength(low=20, high=20),
    )

    command = _command(load)

    assert _option(command, "--random-input-len") == "100"
    assert _option(command, "--random-range-ratio") == '{"input":0.5,"output":0.0}'


def test_other_lengths_are_drawn_into_a_file(tmp_path: Path) -> None:
    """Long-tailed lengths go to the client as the very requests, at the asked rate."""
    load = _load(
        PoissonArrivals(requests_per_s=4.0),
        prompt=LognormalLength(mean=100, p99=400),
        num_requests=20,
    )

    command = _command(load)

    assert _option(command, "--dataset-name") == "timed_trace"
    assert "--no-self-timed" in command
    assert _option(command, "--request-rate") == "4.0"
    assert load.requests is not None
    assert len({request.prompt_tokens for request in load.requests}) > 5
    assert all(r.prompt_tokens + r.output_tokens <= 4096 for r in load.requests)


def test_a_trace_keeps_its_own_times() -> None:
    """Recorded arrivals are replayed from the first one on."""
    trace = Trace(at_s=[10.0, 10.5, 12.0], prompt_tokens=[5, 6, 7], output_tokens=[1, 2, 3])
    load = _load(trace)

    assert "--self-timed" in _command(load)
    assert load.requests is not None
    assert [request.at_s for request in load.requests] == [0.0, 0.5, 2.0]


def test_the_targets_that_the_client_knows_become_its_goodput() -> None:
    """TTFT, TPOT and E2EL limits are passed on; ITL is not one of its metrics."""
    slo = Slo(
        targets=[
            LatencyTarget(metric="ttft", percentile=95, limit_ms=500),
            LatencyTarget(metric="itl", percentile=95, limit_ms=50),
        ]
    )
    command = _command(_load(ClosedLoop(max_concurrency=1)), slo)

    assert _option(command, "--goodput") == "ttft:500"
    assert "itl:50" not in command


def test_a_recorded_result_is_read() -> None:
    """Rates, percentiles and the latencies of single requests come out of a real result."""
    real = json.loads(_result())

    found = read_result(_result(), _load(ClosedLoop(max_concurrency=16)))

    assert found.completed == 3
    assert found.latencies["ttft"].p95 == pytest.approx(real["p95_ttft_ms"], abs=0.001) != 0
    assert found.output_tokens_per_s == pytest.approx(real["output_throughput"]) != 0
    assert len(found.samples["ttft"]) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"completed": 0, "failed": 3},
        {"completed": 2, "failed": 1},
        {"completed": 2, "failed": 0},
        {"output_lens": [192, 192, 100]},
        {"output_lens": [192, 384, 0]},
        {"ttfts": None},
    ],
)
def test_a_result_that_proves_nothing_is_rejected(changes: dict[str, Any]) -> None:
    """Failed or missing requests, truncated streams and unreadable files are no measurement."""
    with pytest.raises(RejectedResult):
        read_result(_result(**changes), _load(ClosedLoop(max_concurrency=16)))


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b"[1]"])
def test_what_is_no_result_is_rejected(content: bytes) -> None:
    """A file that another program or a crash left is rejected with its reason."""
    with pytest.raises(RejectedResult):
        read_result(content, _load(ClosedLoop(max_concurrency=16)))


def test_what_was_sent_is_told_from_the_clients_beginning() -> None:
    """Times count from when the client began, which its clock does not say but its duration does.

    Requests come in the order in which they were sent.
    """
    changes = {
        "start_times": [103.0, 101.0, 102.0],
        "input_lens": [10, 20, 30],
        "output_lens": [1, 1, 1],
        "ttfts": [0.5, 0.25, 0.25],
        "itls": [[], [], []],
        "duration": 4.0,
    }
    load = _load(PoissonArrivals(requests_per_s=1.0), output=1)

    played = read_result(_result(**changes), load).played

    assert played.sent_s == pytest.approx((1.5, 2.5, 3.5))
    assert played.prompt_tokens == (20, 30, 10)
    assert (played.offered_requests_per_s, played.max_concurrency) == (1.0, None)


def test_a_closed_loop_is_told_in_the_order_of_the_client() -> None:
    """When it sends follows from what the engine answers: only the order and the clients count."""
    changes = {"start_times": [3.0, 1.0, 2.0], "input_lens": [10, 20, 30]}

    played = read_result(_result(**changes), _load(ClosedLoop(max_concurrency=2))).played

    assert played.prompt_tokens == (10, 20, 30)
    assert (played.offered_requests_per_s, played.max_concurrency) == (None, 2)


@pytest.mark.parametrize("starts", [None, [1.0]])
def test_a_client_that_does_not_say_when_it_sent_is_believed_all_the_same(
    starts: list[float] | None,
) -> None:
    """Older clients keep no times of sending."""
    played = read_result(
        _result(start_times=starts), _load(PoissonArrivals(requests_per_s=2.0))
    ).played

    assert played.sent_s is None
