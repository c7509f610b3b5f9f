"""A load and its limits divided among equal copies of a configuration."""

import math

import msgspec

from api_schemas.slo import Slo
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
    Trace,
    Workload,
)


def share_of(workload: Workload, *, copies: int) -> Workload:
    """Return the load that one of `copies` equal copies sees behind a balancer."""
    if copies == 1 or workload.arrivals is None:
        return workload
    return msgspec.structs.replace(
        workload, arrivals=arrivals_of_one(workload.arrivals, copies=copies)
    )


def loaded_copies(workload: Workload, *, copies: int) -> float:
    """Return how many copies under one copy's share make up the whole load.

    Requests in flight are whole: of 5 in 4 copies a share is 2, and two and a half of those
    shares are the load.
    """
    match workload.arrivals:
        case ClosedLoop(max_concurrency=requests) | BatchArrivals(num_requests=requests):
            return requests / math.ceil(requests / copies)
        case _:
            return float(copies)


def scaled(workload: Workload, factor: float) -> Workload:
    """Return an open-loop workload at `factor` times its rate; others as they are."""
    arrivals = workload.arrivals
    match arrivals:
        case PoissonArrivals() | GammaArrivals():
            rate = arrivals.requests_per_s * factor
            faster: Arrivals = msgspec.structs.replace(arrivals, requests_per_s=rate)
        case Trace():
            faster = msgspec.structs.replace(arrivals, at_s=[t / factor for t in arrivals.at_s])
        case _:
            return workload
    return msgspec.structs.replace(workload, arrivals=faster)


def slo_of_one(slo: Slo, *, copies: float) -> Slo:
    """Return the limits that one of `copies` loaded copies must hold: totals are divided."""
    if copies == 1:
        return slo
    return msgspec.structs.replace(
        slo,
        min_requests_per_s=_part(slo.min_requests_per_s, copies),
        min_output_tokens_per_s=_part(slo.min_output_tokens_per_s, copies),
    )


def _part(total: float | None, copies: float) -> float | None:
    return None if total is None else total / copies


def arrivals_of_one(arrivals: Arrivals, *, copies: int) -> Arrivals:
    """Return what one of `copies` equal copies is offered; people are not divided."""
    match arrivals:
        case PoissonArrivals() | GammaArrivals():
            # A balancer that deals requests out in turn makes each share less bursty, never more.
            return msgspec.structs.replace(
                arrivals,
                requests_per_s=arrivals.requests_per_s / copies,
                num_requests=_requests_of_one(arrivals.num_requests, copies),
            )
        case ClosedLoop():
            return ClosedLoop(
                max_concurrency=math.ceil(arrivals.max_concurrency / copies),
                num_requests=_requests_of_one(arrivals.num_requests, copies),
            )
        case BatchArrivals():
            return BatchArrivals(num_requests=math.ceil(arrivals.num_requests / copies))
        case Trace():
            return Trace(
                at_s=arrivals.at_s[::copies],
                prompt_tokens=arrivals.prompt_tokens[::copies],
                output_tokens=arrivals.output_tokens[::copies],
            )
        case _:
            return arrivals


def _requests_of_one(whole: int | None, copies: int) -> int | None:
    return None if whole is None else math.ceil(whole / copies)
