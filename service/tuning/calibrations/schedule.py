"""A measured figure as a weighted sum of step times.

In a closed loop the sequence of batches hardly depends on how fast a step is, so TTFT, TPOT and run
time are sums of the seconds of simulated events with fixed weights. A fit then only prices events
instead of simulating anew.
"""

import math
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.latency.price import NUM_PRICES
from service.tuning.performance import Prediction
from service.tuning.simulation.metrics import (
    missing_requests,
    output_tokens,
    run_seconds,
    steady_window,
)
from service.tuning.simulation.run import FrontEnd, Run, run_scheduler
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]
FigureMetric = Literal["ttft", "tpot", "output_tokens_per_s"]
FigureStatistic = Literal["mean", "p50"]
MAX_EVENTS = 200_000
_SLOWER = 1.5
"""How much slower the front end is made to see what waits for it."""
_NOTICED = 0.02
"""Share of a run that its longest wait for the front end must reach to be looked into."""
_MIDDLE = (0.4, 0.6)
"""The requests whose mean stands for the median."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure: seconds for latencies, output tokens per second for throughput."""

    metric: FigureMetric
    statistic: FigureStatistic = "mean"
    value: float


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of each component of the price in each figure, at the prices of one simulation."""

    seconds: Floats
    """One row per figure, one column per component."""
    front_end: Floats
    """Seconds per figure that pass before the engine has the request."""
    idle: Floats
    """Seconds per figure in which the engine waits for requests."""
    tokens: float
    """Output tokens of the whole run, all replicas."""


def schedule_of(
    prediction: Prediction, *, traffic: Traffic, figures: tuple[Figure, ...]
) -> Schedule | None:
    """Return the schedule of a load at these prices; None when it cannot be served or recorded."""
    run = _recorded(prediction, prediction.front_end, traffic=traffic)
    if run is None:
        return None
    spans = run.events[:, 2] - run.events[:, 1]
    is_idle = run.events[:, 0] == 0
    rows = [_weights(run, figure, spans=spans) for figure in figures]
    weights = np.array([weight for weight, _ in rows])
    busy = np.where(is_idle, 0.0, weights)
    schedule = Schedule(
        seconds=_priced(prediction.price, run.events, busy),
        front_end=np.array([_front_end(run, share) for _, share in rows]),
        idle=(weights * spans)[:, is_idle].sum(axis=1),
        tokens=output_tokens(run) * prediction.replicas,
    )
    rates = np.array([figure.metric == "output_tokens_per_s" for figure in figures])
    if not rates.any() or not _is_paced(run):
        return schedule
    return _with_share(schedule, rates, share=_paced_share(prediction, run))


def _recorded(prediction: Prediction, front_end: FrontEnd, *, traffic: Traffic) -> Run | None:
    run = run_scheduler(
        prediction.price,
        traffic=traffic,
        limits=prediction.limits,
        front_end=front_end,
        growth=prediction.work.tokens_per_step,
        max_events=MAX_EVENTS,
    )
    return None if run is None or len(run.events) >= MAX_EVENTS else run


def _is_paced(run: Run) -> bool:
    """Tell whether taking in what was sent at once could be what a run without a rate waits for."""
    if run.traffic.arrivals.any():
        return False
    longest = float((run.times[:, 1] - run.times[:, 0]).max())
    return longest > _NOTICED * run.duration_s


def _paced_share(prediction: Prediction, run: Run) -> float:
    """Return by which power of the front end's time the run takes longer.

    A thousand short requests take as long as the front end needs to hand them over: the engine
    works all the while, in small batches, and a faster one would not end sooner. Its steps alone do
    not show that, but a run with a slower front end does.
    """
    slower = _recorded(prediction, prediction.front_end.scaled(_SLOWER), traffic=run.traffic)
    if slower is None:
        return 0.0
    power = math.log(run_seconds(slower) / run_seconds(run)) / math.log(_SLOWER)
    return min(max(power, 0.0), 1.0)


def _with_share(schedule: Schedule, rows: NDArray[np.bool_], *, share: float) -> Schedule:
    """Return the schedule with this share of the rows' time in the front end.

    Where both are slower by one factor the whole run is, so that the rest is the engine's.
    """
    engine = schedule.seconds.sum(axis=1)
    total = engine + schedule.front_end + schedule.idle
    scale = np.where(rows, (1.0 - share) * total / np.maximum(engine, 1e-30), 1.0)
    return msgspec.structs.replace(
        schedule,
        seconds=schedule.seconds * scale[:, None],
        front_end=np.where(rows, share * total, schedule.front_end),
        idle=np.where(rows, 0.0, schedule.idle),
    )


def _priced(prices: Floats, events: Floats, weights: Floats) -> Floats:
    """Return the weighted seconds of each component, one row per figure."""
    from service.tuning.simulation.kernel import step_shares  # noqa: PLC0415 - loads the compiler

    counted = np.flatnonzero(weights.any(axis=0))
    shares = np.zeros((len(counted), NUM_PRICES))
    for row, batch in zip(shares, events[counted, 3:], strict=True):
        step_shares(prices, batch, row)
    seconds: Floats = (weights[:, counted] * events[counted, 0]) @ shares
    return seconds


def _weights(run: Run, figure: Figure, *, spans: Floats) -> tuple[Floats, Floats]:
    """Return the weight of each event's seconds, and of each request in the front end's."""
    match figure.metric:
        case "output_tokens_per_s":
            return _duration_weights(run, spans), np.zeros(len(run.times))
        case "tpot":
            return _tpot_weights(run, figure.statistic, len(spans)), np.zeros(len(run.times))
        case "ttft":
            return _ttft_weights(run, figure.statistic, spans=spans)


def _duration_weights(run: Run, spans: Floats) -> Floats:
    weight = np.ones(len(spans))
    missing = missing_requests(run)
    if missing > 0:
        start, end, finished = steady_window(run)
        inside = (run.events[:, 1] >= start) & (run.events[:, 2] <= end)
        weight[inside] += missing / max(finished, 1)
    return weight


def _tpot_weights(run: Run, statistic: FigureStatistic, count: int) -> Floats:
    gaps = np.maximum(run.traffic.outputs - 1, 1)
    values = np.where(run.traffic.outputs > 1, (run.times[:, 4] - run.times[:, 3]) / gaps, np.nan)
    share = _request_share(values, run.traffic.weights, statistic) / gaps
    return _between(run.marks[:, 1], run.marks[:, 2], share, count)


def _ttft_weights(run: Run, statistic: FigureStatistic, *, spans: Floats) -> tuple[Floats, Floats]:
    share = _request_share(run.times[:, 3] - run.times[:, 0], run.traffic.weights, statistic)
    under_way = run.marks[:, 0]
    weight = _between(under_way, run.marks[:, 1], share, len(spans))
    rest = np.clip(run.events[under_way, 2] - run.times[:, 1], 0.0, None)
    np.add.at(weight, under_way, share * rest / np.maximum(spans[under_way], 1e-12))
    return weight, share


def _between(after: NDArray[np.int64], until: NDArray[np.int64], share: Floats, n: int) -> Floats:
    """Return each event's weight when a request's share counts from after one event to another."""
    change = np.zeros(n + 1)
    np.add.at(change, after + 1, share)
    np.add.at(change, until + 1, -share)
    weight: Floats = np.cumsum(change)[:n]
    return weight


def _request_share(values: Floats, weights: Floats, statistic: FigureStatistic) -> Floats:
    """Return how much each request counts in the statistic; the shares add up to one."""
    kept = np.isfinite(values)
    share = np.where(kept, weights, 0.0)
    if statistic == "p50":
        share = np.where(_middle(values, share, kept), share, 0.0)
    total = share.sum()
    return share / total if total > 0 else share


def _middle(values: Floats, share: Floats, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    order = np.argsort(np.where(kept, values, np.inf), kind="stable")
    position = np.empty(len(values))
    position[order] = (np.cumsum(share[order]) - share[order] / 2) / max(share.sum(), 1e-300)
    middle: NDArray[np.bool_] = kept & (position >= _MIDDLE[0]) & (position <= _MIDDLE[1])
    if middle.any() or not kept.any():
        return middle
    nearest: NDArray[np.bool_] = kept & (
        np.abs(position - 0.5) == np.abs(position[kept] - 0.5).min()
    )
    return nearest


def _front_end(run: Run, share: Floats) -> float:
    """Return the mean seconds from sending to the engine over the requests that count."""
    return float((share * (run.times[:, 1] - run.times[:, 0])).sum())
