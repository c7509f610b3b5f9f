"""Predicting the very run that was played, instead of a service that goes on."""

from typing import Any

import msgspec
import pytest

from api_schemas.estimate import EstimateRequest, Performance
from service.tuning.estimate import estimate
from service.tuning.played_run import PlayedRun, traffic_of

_PROMPT, _OUTPUT = 64, 200


def _performance(arrivals: dict[str, Any], played: PlayedRun | None = None) -> Performance:
    request = msgspec.convert(
        {
            "model": {"id": "Qwen/Qwen3-8B"},
            "hardware": {"gpu": "L40S"},
            "engine": {"version": "0.33.0"},
            "workload": {
                "prompt_tokens": _PROMPT,
                "output_tokens": _OUTPUT,
                "arrivals": arrivals,
            },
        },
        EstimateRequest,
    )
    answer = estimate(request, played=played).performance
    assert answer is not None
    return answer


def _played(number: int, *, rate: float | None = None, clients: int | None = None) -> PlayedRun:
    return PlayedRun(
        prompt_tokens=(_PROMPT,) * number,
        output_tokens=(_OUTPUT,) * number,
        sent_s=tuple((place + 1) / rate for place in range(number)) if rate else None,
        max_concurrency=clients,
        offered_requests_per_s=rate,
    )


@pytest.mark.parametrize("number", [8, 40])
def test_a_short_open_loop_serves_less_than_it_is_offered(number: int) -> None:
    """Its tail counts: requests over the time from the client's begin to the last answer."""
    rate = 4.0
    steady = _performance({"kind": "poisson", "requests_per_s": rate})

    run = _performance(
        {"kind": "poisson", "requests_per_s": rate, "num_requests": number},
        _played(number, rate=rate),
    )

    tail_s = run.e2el_ms.p50 / 1000
    assert run.requests_per_s == pytest.approx(number / (number / rate + tail_s), rel=0.02)
    assert run.requests_per_s < steady.requests_per_s == pytest.approx(rate)


def test_requests_that_are_sent_together_wait_for_each_other() -> None:
    """At the same mean rate, bursts are predicted with the TTFT that bursts have."""
    arrivals = {"kind": "gamma", "requests_per_s": 4.0, "burstiness": 0.2, "num_requests": 40}
    even = _played(40, rate=4.0)
    bursts = msgspec.structs.replace(
        even, sent_s=tuple(float(place // 20 * 5) for place in range(40))
    )

    calm, bursty = (_performance(arrivals, played) for played in (even, bursts))

    assert bursty.ttft_ms.p95 > 1.5 * calm.ttft_ms.p95


def test_clients_in_step_wait_longer_for_their_prompts() -> None:
    """Answers of exactly equal length keep clients in step; those of a service differ a little."""
    loop = {"kind": "closed_loop", "max_concurrency": 32}

    service, played = _performance(loop), _performance(loop, _played(128, clients=32))

    assert played.ttft_ms.p50 > service.ttft_ms.p50


def test_a_short_run_of_equal_answers_is_in_step() -> None:
    """A benchmark of stated size and fixed lengths is predicted as it plays; longer ones part."""
    short = {"kind": "closed_loop", "max_concurrency": 32, "num_requests": 128}
    longer = {**short, "num_requests": 32 * 20}

    drawn, played = _performance(short), _performance(short, _played(128, clients=32))

    assert drawn.ttft_ms.p50 == pytest.approx(played.ttft_ms.p50, rel=0.02)
    assert drawn.ttft_ms.p50 > _performance(longer).ttft_ms.p50


def test_an_open_loop_without_its_times_is_drawn() -> None:
    """Older clients do not say when they sent: as many requests at the same rate stand for it."""
    arrivals = {"kind": "poisson", "requests_per_s": 4.0, "num_requests": 40}
    untimed = msgspec.structs.replace(_played(40, rate=4.0), sent_s=None)

    assert _performance(arrivals, untimed) == _performance(arrivals)


def test_copies_share_a_run_among_them() -> None:
    """Of every two requests each of two engines sees one; none is lost."""
    played = msgspec.structs.replace(_played(5, clients=3), prompt_tokens=(1, 2, 3, 4, 5))

    share = traffic_of(played, replicas=2)

    assert share.prompts.tolist() == [1, 3, 5]
    assert share.concurrency == 2
    assert share.weights.sum() == pytest.approx(1.0)
