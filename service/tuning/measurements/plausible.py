"""Whether figures can be true together: a slip of units or a broken run is refused."""

import math
from collections.abc import Callable
from itertools import pairwise

from api_schemas.measurement import Observed, Statistics
from api_schemas.workload import ClosedLoop, Workload
from service.tuning.errors import InvalidRequest
from service.tuning.lengths import mean_tokens

_SLIP = 20.0
"""Factor from which two figures contradict each other: units are 1000 apart, noise is not."""
_ORDER = ("p50", "p90", "p95", "p99")
_MS_PER_S = 1e3


Place = Callable[[str], str]
"""From one of our names of a figure to the pointer of the field that stated it."""


def refuse_implausible(observed: Observed, workload: Workload, *, place: Place) -> None:
    """Return when the figures can stand together.

    Raises:
        InvalidRequest: Requests failed, nothing was measured, percentiles fall, or two figures are
            so far apart that one must be in another unit.
    """
    if observed.failed:
        raise InvalidRequest(
            f"{observed.failed} requests failed: the latencies are those of the others only",
            pointer=place("failed"),
        )
    named = _latencies(observed)
    rates = (observed.output_tokens_per_s, observed.requests_per_s, observed.total_tokens_per_s)
    if not named and not any(rates):
        raise InvalidRequest(
            "at least one of ttft_ms, tpot_ms, itl_ms, e2el_ms, requests_per_s and "
            "output_tokens_per_s is needed",
            pointer=place(""),
        )
    for name, values in named.items():
        _refuse_falling(values, pointer=place(name))
    _refuse_parts_beyond_whole(observed, workload, place=place)
    _refuse_broken_law(observed, workload, place=place)


def typical(values: Statistics | None) -> float | None:
    """Return mean, else median, else what the source does not name; milliseconds."""
    if values is None:
        return None
    return values.mean or values.p50 or values.unspecified


def _latencies(observed: Observed) -> dict[str, Statistics]:
    all_four = {
        "ttft_ms": observed.ttft_ms,
        "tpot_ms": observed.tpot_ms,
        "itl_ms": observed.itl_ms,
        "e2el_ms": observed.e2el_ms,
    }
    empty = Statistics()
    return {
        name: values for name, values in all_four.items() if values is not None and values != empty
    }


def _refuse_falling(values: Statistics, *, pointer: str) -> None:
    stated = [(name, getattr(values, name)) for name in _ORDER if getattr(values, name)]
    for (low, lower), (high, higher) in pairwise(stated):
        if higher < lower:
            raise InvalidRequest(f"{high} ({higher:g}) is below {low} ({lower:g})", pointer=pointer)


def _refuse_parts_beyond_whole(observed: Observed, workload: Workload, *, place: Place) -> None:
    """Compare E2EL with TTFT + TPOT x (tokens - 1)."""
    ttft, tpot, e2el = (
        typical(values) for values in (observed.ttft_ms, observed.tpot_ms, observed.e2el_ms)
    )
    tokens = _output_tokens(workload)
    if e2el is None or tokens is None:
        return
    if tpot is not None and ttft is not None:
        _refuse_slip(e2el, ttft + tpot * (tokens - 1), "TTFT and TPOT make it", place("e2el_ms"))
    elif ttft is not None and ttft > e2el * _SLIP:
        _refuse_slip(ttft, e2el, "E2EL is", place("ttft_ms"))


def _refuse_broken_law(observed: Observed, workload: Workload, *, place: Place) -> None:
    """Compare a closed loop's rate with its clients over the latency (Little's law)."""
    arrivals, tokens = workload.arrivals, _output_tokens(workload)
    e2el = typical(observed.e2el_ms)
    ttft, tpot = typical(observed.ttft_ms), typical(observed.tpot_ms)
    if not isinstance(arrivals, ClosedLoop) or tokens is None:
        return
    named = "e2el_ms"
    if e2el is None:
        if tpot is None or tokens <= 1:
            return
        e2el, named = (ttft or 0.0) + tpot * (tokens - 1), "tpot_ms"
    rate = observed.requests_per_s
    if rate is None and observed.output_tokens_per_s is not None:
        rate = observed.output_tokens_per_s / tokens
    if rate is None:
        return
    expected = arrivals.max_concurrency / rate * _MS_PER_S
    _refuse_slip(e2el, expected, "clients over the rate make the latency", place(named))


def _refuse_slip(stated: float, expected: float, why: str, pointer: str) -> None:
    if expected <= 0 or abs(math.log(stated / expected)) < math.log(_SLIP):
        return
    raise InvalidRequest(
        f"{stated:g} ms cannot be: {why} {expected:.4g} ms; latencies are milliseconds",
        pointer=pointer,
    )


def _output_tokens(workload: Workload) -> float | None:
    return mean_tokens(workload.output_tokens) if workload.output_tokens is not None else None
