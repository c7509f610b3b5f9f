"""A load divided among copies, and scaled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_schemas.slo import Slo
from api_schemas.workload import (
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
    Trace,
    Workload,
)
from service.tuning.search.demand import requests_per_s
from service.tuning.search.share import loaded_copies, scaled, share_of, slo_of_one


@given(rate=st.floats(0.01, 1000), copies=st.integers(1, 64))
def test_shares_of_a_rate_add_up(rate: float, copies: int) -> None:
    """As many shares as copies are the whole rate again."""
    workload = Workload(arrivals=PoissonArrivals(requests_per_s=rate))

    share = share_of(workload, copies=copies)

    assert isinstance(share.arrivals, PoissonArrivals)
    assert share.arrivals.requests_per_s * copies == pytest.approx(rate)


@given(clients=st.integers(1, 1000), copies=st.integers(1, 64))
def test_no_client_is_lost(clients: int, copies: int) -> None:
    """Clients and requests of a batch are divided upward, never dropped."""
    loop = share_of(Workload(arrivals=ClosedLoop(max_concurrency=clients)), copies=copies)
    batch = share_of(Workload(arrivals=BatchArrivals(num_requests=clients)), copies=copies)

    assert isinstance(loop.arrivals, ClosedLoop)
    assert isinstance(batch.arrivals, BatchArrivals)
    assert loop.arrivals.max_concurrency * copies >= clients
    assert batch.arrivals.num_requests * copies >= clients


def test_a_trace_is_dealt_out_in_turn() -> None:
    """Each copy gets every n-th request, with its own lengths."""
    trace = Trace(at_s=[0.0, 1.0, 2.0, 3.0], prompt_tokens=[1, 2, 3, 4], output_tokens=[5, 6, 7, 8])

    share = share_of(Workload(arrivals=trace), copies=2)

    assert share.arrivals == Trace(at_s=[0.0, 2.0], prompt_tokens=[1, 3], output_tokens=[5, 7])


def test_scaling_multiplies_the_rate() -> None:
    """Twice the load of rates and traces is twice the mean rate; loops stay as they are."""
    gamma = Workload(arrivals=GammaArrivals(requests_per_s=3, burstiness=0.5))
    trace = Workload(arrivals=Trace(at_s=[0.0, 4.0], prompt_tokens=[1, 1], output_tokens=[1, 1]))
    loop = Workload(arrivals=ClosedLoop(max_concurrency=3))

    for workload in (gamma, trace):
        before, after = workload.arrivals, scaled(workload, 2).arrivals
        assert before is not None
        assert after is not None
        assert requests_per_s(after) == pytest.approx(2 * (requests_per_s(before) or 0))
    assert scaled(loop, 2) is loop


def test_totals_are_divided_and_latencies_are_not() -> None:
    """A copy must hold its part of a throughput, and the latency limits in full."""
    slo = Slo(min_requests_per_s=8, min_output_tokens_per_s=100)

    one = slo_of_one(slo, copies=4)

    assert one.min_requests_per_s == 2
    assert one.min_output_tokens_per_s == 25
    assert one.targets == slo.targets


def test_what_all_copies_do_is_what_the_load_lets_them() -> None:
    """Five clients on four copies are two and a half shares of two, not four."""
    load = Workload(prompt_tokens=500, output_tokens=100, arrivals=ClosedLoop(max_concurrency=5))

    assert loaded_copies(load, copies=4) == 2.5
    assert loaded_copies(load, copies=1) == 1.0
