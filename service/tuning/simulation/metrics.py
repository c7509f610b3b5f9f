"""Means, percentiles and rates of a simulated run, by vLLM's own definitions.

TTFT from sending to the first token; TPOT (end - first token) / (output tokens - 1) of a request;
ITL every gap between two tokens; E2EL from sending to the end. Output throughput of a run that
ends is all tokens over the whole of it, ramp and tail included, as `vllm bench serve` prints it;
of a service that goes on it is that of the steady part.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.latency.price import GAP_BINS, GAP_HIGH_S, GAP_LOW_S
from service.tuning.simulation.run import Run

Floats = NDArray[np.float64]
FRACTIONS = (0.5, 0.9, 0.95, 0.99)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and percentiles of one quantity, seconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine does on average while it is in use."""

    requests_per_s: float
    output_tokens_per_s: float
    running: float
    waiting: float
    used_blocks: float


class RequestLatencies(msgspec.Struct, frozen=True, kw_only=True):
    """The latencies of every request, seconds; TPOT is nan for one-token answers."""

    ttft: Floats
    tpot: Floats
    e2el: Floats


def request_latencies(run: Run) -> RequestLatencies:
    """Return each request's latencies, from sending on."""
    sent, first, end = run.times[:, 0], run.times[:, 3], run.times[:, 4]
    gaps = run.traffic.outputs - 1
    if gaps.min() > 0:
        tpot = (end - first) / gaps
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            tpot = np.where(gaps > 0, (end - first) / gaps, np.nan)
    return RequestLatencies(ttft=first - sent, tpot=tpot, e2el=end - sent)


def summarize(values: Floats, weights: Floats) -> Summary:
    """Return weighted mean and percentiles of the finite values; zeros when there are none."""
    if len(values) and weights[0] == weights[-1] and (weights == weights[0]).all():
        ordered = values.copy()
        ordered.sort()
        if math.isfinite(ordered[0]) and math.isfinite(ordered[-1]):
            return _of_equals(ordered)
    kept = np.isfinite(values)
    if not kept.all():
        values, weights = values[kept], weights[kept]
    if not len(values):
        return Summary(mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0)
    if weights[0] == weights[-1] and (weights == weights[0]).all():
        return _of_equals(np.sort(values))
    order = np.argsort(values, kind="stable")
    ordered, share = values[order], weights[order]
    middle = (np.cumsum(share) - share / 2) / share.sum()
    points = np.interp(FRACTIONS, middle, ordered)
    return Summary(
        mean=float((ordered * share).sum() / share.sum()),
        p50=float(points[0]),
        p90=float(points[1]),
        p95=float(points[2]),
        p99=float(points[3]),
    )


def _of_equals(ordered: Floats) -> Summary:
    """Return mean and percentiles of ordered values that weigh the same: no search among them."""
    last = len(ordered) - 1
    points = []
    for fraction in FRACTIONS:
        place = min(max(fraction * (last + 1) - 0.5, 0.0), float(last))
        below = int(place)
        low, high = float(ordered[below]), float(ordered[min(below + 1, last)])
        points.append(low + (high - low) * (place - below))
    p50, p90, p95, p99 = points
    return Summary(mean=float(ordered.sum()) / (last + 1), p50=p50, p90=p90, p95=p95, p99=p99)


def summarize_gaps(run: Run, *, tokens_per_step: float) -> Summary:
    """Return mean and percentiles of the gaps between tokens.

    With speculation the tokens of one step arrive together, and one gap is one step (vLLM's
    benchmark measures per chunk); `tokens_per_step` only keeps the mean of no gaps at zero.
    """
    count = run.gaps.sum()
    if count <= 0 or tokens_per_step <= 0:
        return Summary(mean=0.0, p50=0.0, p90=0.0, p95=0.0, p99=0.0)
    cumulative = run.gaps.cumsum() / count
    ratio = (GAP_HIGH_S / GAP_LOW_S) ** (1.0 / GAP_BINS)
    bins = cumulative.searchsorted(FRACTIONS)
    points = GAP_LOW_S * ratio ** (np.minimum(bins, GAP_BINS - 1) + 0.5)
    return Summary(
        mean=run.mean_gap_s,
        p50=float(points[0]),
        p90=float(points[1]),
        p95=float(points[2]),
        p99=float(points[3]),
    )


def flow_of(run: Run, *, is_saturated: bool) -> Flow:
    """Return the throughput of a run and what is in flight; of endless loads, of the steady part.

    An engine that keeps up with an endless load serves what is offered.
    """
    traffic = run.traffic
    if traffic.is_endless:
        return _steady_flow(run, is_saturated=is_saturated)
    seconds = run_seconds(run)
    requests = max(traffic.waves * traffic.concurrency, float(len(traffic.prompts)))
    return Flow(
        requests_per_s=requests / seconds,
        output_tokens_per_s=output_tokens(run) / seconds,
        running=run.mean_running,
        waiting=run.mean_waiting,
        used_blocks=run.mean_used_blocks,
    )


def _steady_flow(run: Run, *, is_saturated: bool) -> Flow:
    """Return what goes on while requests come, or while they queue where they come too fast."""
    sent, scheduled, first, end = (run.times[:, column] for column in (0, 2, 3, 4))
    mean_outputs = float(run.traffic.outputs.mean())
    rate = run.traffic.offered_requests_per_s or 0.0
    running = rate * float((end - scheduled).mean())
    waiting = rate * float((scheduled - sent).mean())
    if is_saturated:
        last = float(scheduled.max())
        window = (last / 2, last) if last > 0 else (0.0, run.duration_s)
        seconds = window[1] - window[0]
        share = _overlap(first, end, window) / np.maximum(end - first, 1e-9)
        tokens = float((run.traffic.outputs * share).sum()) / seconds
        tokens = tokens or output_tokens(run) / run.duration_s
        rate = min(tokens / mean_outputs, rate)
        running = float(_overlap(scheduled, end, window).sum()) / seconds
        waiting = float(_overlap(sent, scheduled, window).sum()) / seconds
    return Flow(
        requests_per_s=rate,
        output_tokens_per_s=rate * mean_outputs,
        running=running,
        waiting=waiting,
        used_blocks=run.mean_used_blocks * running / max(run.mean_running, 1e-9),
    )


def _overlap(start: Floats, end: Floats, window: tuple[float, float]) -> Floats:
    """Return how much of each span lies in the window, seconds."""
    inside = np.minimum(end, window[1]) - np.maximum(start, window[0])
    return np.asarray(np.maximum(inside, 0.0))


def run_seconds(run: Run) -> float:
    """Return the duration of the run that the simulated one stands for.

    A closed loop of ten waves that was simulated for four is prolonged by the missing requests at
    the steady rate between the end of the first wave and the last arrival.
    """
    missing = missing_requests(run)
    if missing <= 0:
        return run.duration_s
    start, end, finished = steady_window(run)
    return run.duration_s + (missing * (end - start) / finished if finished else 0.0)


def missing_requests(run: Run) -> float:
    """Return the requests of the protocol that were not simulated."""
    traffic = run.traffic
    return max(traffic.waves * traffic.concurrency - len(traffic.prompts), 0.0)


def steady_window(run: Run) -> tuple[float, float, int]:
    """Return start, end and finished requests of a closed loop between ramp and tail."""
    ends = np.sort(run.times[:, 4])
    start = float(ends[min(run.traffic.concurrency, len(ends)) - 1])
    end = float(run.times[-1, 0])
    finished = int(((ends > start) & (ends <= end)).sum())
    return start, end, finished


def output_tokens(run: Run) -> float:
    """Return the output tokens of all requests that the run stands for."""
    total = float(run.traffic.outputs.sum())
    return total * (1.0 + missing_requests(run) / len(run.traffic.outputs))
