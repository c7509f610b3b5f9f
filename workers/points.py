"""A measured load beside its prediction, and the targets beside the measurement."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate, Performance
from api_schemas.slo import LatencyTarget, Slo, TargetVerdict
from api_schemas.validation import (
    LoadPoint,
    MeasuredOutcome,
    Startup,
    StartupFigures,
    Verdict,
)
from workers.bench import BenchResult
from workers.scrape import LoadMetrics, Scrape
from workers.statistics import (
    Interval,
    mean_interval,
    percentile_interval,
    percentile_of,
    rate_interval,
)
from workers.traffic import Load

_DIGITS = 4


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A load point with the latencies of its single requests."""

    point: LoadPoint
    samples: dict[str, list[float]]


def measurement(
    result: BenchResult,
    metrics: LoadMetrics,
    load: Load,
    *,
    label: str,
    config: EngineConfig,
    predicted: Estimate | None,
) -> Measurement:
    """Return what came of a load, beside what was predicted for it."""
    preemptions = metrics.preemptions
    point = LoadPoint(
        label=label,
        config=config,
        offered=load.arrivals,
        num_requests=load.num_requests,
        seed=load.seed,
        duration_s=round(result.duration_s, 3),
        completed=result.completed,
        failed=result.failed,
        ttft_ms=result.latencies["ttft"],
        tpot_ms=result.latencies["tpot"],
        itl_ms=result.latencies["itl"],
        e2el_ms=result.latencies["e2el"],
        requests_per_s=result.requests_per_s,
        output_tokens_per_s=result.output_tokens_per_s,
        goodput_requests_per_s=result.goodput_requests_per_s,
        preemptions=preemptions,
        preemptions_per_request=None if preemptions is None else preemptions / result.completed,
        kv_cache_usage_peak=metrics.kv_cache_usage_peak,
        running_peak=metrics.running_peak,
        waiting_peak=metrics.waiting_peak,
        prefix_cache_hit_ratio=metrics.prefix_cache_hit_ratio,
        queue_time_mean_ms=metrics.queue_time_mean_ms,
        predicted={},
        error_percent={},
    )
    figures = _predicted(predicted.performance if predicted else None)
    errors = _errors(figures, _measured(point))
    point = msgspec.structs.replace(point, predicted=figures, error_percent=errors)
    return Measurement(point=point, samples=result.samples)


def startup(log: StartupFigures, scrape: Scrape, *, predicted: Estimate | None) -> Startup:
    """Return the start-up figures beside the prediction; the engine's own gauge beats the log."""
    config = scrape.cache_config
    tokens = _number(config.get("kv_cache_size_tokens")) or log.kv_cache_tokens
    concurrency = _number(config.get("kv_cache_max_concurrency")) or log.max_concurrency
    expected = _startup_prediction(predicted)
    figures = {
        "seconds": log.seconds,
        "weights_gib": log.weights_gib,
        "kv_cache_gib": _pool_gib(config) or log.kv_cache_gib,
        "kv_cache_tokens": None if tokens is None else int(tokens),
        "max_concurrency": concurrency,
        "cuda_graphs_gib": log.cuda_graphs_gib,
    }
    compared = {
        name: getattr(expected, name) for name in figures if getattr(expected, name) is not None
    }
    known = {name: float(value) for name, value in figures.items() if value is not None}
    return Startup(**figures, predicted=expected, error_percent=_errors(compared, known))  # type: ignore[arg-type]


def judge(
    slo: Slo, measurements: Sequence[Measurement], *, replicas: int, price_per_hour: float | None
) -> list[MeasuredOutcome]:
    """Return every target against the measurements of one load, repeats taken together."""
    if not measurements:
        return []
    outcomes = [_latency(target, measurements) for target in slo.targets]
    return outcomes + _totals(
        slo, [m.point for m in measurements], replicas=replicas, price_per_hour=price_per_hour
    )


def verdict_of(
    outcomes: Sequence[MeasuredOutcome], *, startup_holds: bool | None, as_asked: bool
) -> Verdict:
    """Return whether the recommendation is proven; other hardware than asked proves nothing."""
    if not as_asked:
        return "inconclusive"
    if startup_holds is False or any(item.verdict == "missed" for item in outcomes):
        return "fail"
    if startup_holds is None or any(item.verdict == "uncertain" for item in outcomes):
        return "inconclusive"
    return "pass"


def startup_holds(measured: Startup, predicted: Estimate | None) -> bool | None:
    """Return whether the KV cache is at least the low end of what was predicted; None: unknown."""
    if predicted is None or predicted.memory is None or measured.kv_cache_tokens is None:
        return None
    low, _ = predicted.memory.band["kv_cache_tokens"]
    return measured.kv_cache_tokens >= math.floor(0.98 * low)


def _latency(target: LatencyTarget, measurements: Sequence[Measurement]) -> MeasuredOutcome:
    samples = [value for item in measurements for value in item.samples[target.metric]]
    requests = sum(item.point.completed for item in measurements)
    if target.percentile == "mean":
        measured, name = sum(samples) / max(len(samples), 1), "mean"
        interval = mean_interval(samples, independent=requests)
    else:
        fraction, name = target.percentile / 100, f"p{target.percentile}"
        measured = percentile_of(samples, fraction)
        interval = percentile_interval(samples, fraction, independent=requests)
    return MeasuredOutcome(
        target={
            "metric": target.metric,
            "percentile": str(target.percentile),
            "limit_ms": target.limit_ms,
        },
        measured=round(measured, _DIGITS),
        interval=_rounded(interval),
        predicted=measurements[-1].point.predicted.get(f"{target.metric}_ms_{name}"),
        verdict=_ceiling(interval, target.limit_ms),
    )


def _totals(
    slo: Slo, points: Sequence[LoadPoint], *, replicas: int, price_per_hour: float | None
) -> list[MeasuredOutcome]:
    outcomes = []
    seconds, completed = sum(p.duration_s for p in points), sum(p.completed for p in points)
    tokens = sum(p.output_tokens_per_s * p.duration_s for p in points)
    requests = rate_interval(completed, seconds)
    scale = tokens / completed
    output: Interval = (requests[0] * scale, (requests[1] or 0.0) * scale)
    if slo.min_requests_per_s is not None:
        outcomes.append(
            _floor(
                "requests_per_s", slo.min_requests_per_s, completed / seconds, requests, replicas
            )
        )
    if slo.min_output_tokens_per_s is not None:
        limit = slo.min_output_tokens_per_s
        outcomes.append(_floor("output_tokens_per_s", limit, tokens / seconds, output, replicas))
    preemptions = [p.preemptions for p in points if p.preemptions is not None]
    if slo.max_preemptions_per_request is not None and len(preemptions) == len(points):
        rate = sum(preemptions) / completed
        outcomes.append(
            _ceiling_outcome(
                "preemptions_per_request", slo.max_preemptions_per_request, rate, (rate, rate)
            )
        )
    if slo.max_cost_per_million_output_tokens is not None and price_per_hour is not None:
        low, high = (price_per_hour / 3600 * 1e6 / rate for rate in (output[1] or 1.0, output[0]))
        cost = price_per_hour / 3600 * 1e6 / (tokens / seconds)
        limit = slo.max_cost_per_million_output_tokens
        outcomes.append(
            _ceiling_outcome("cost_per_million_output_tokens", limit, cost, (low, high))
        )
    return outcomes


def _floor(
    metric: str, limit: float, measured: float, interval: Interval, replicas: int
) -> MeasuredOutcome:
    low, high = replicas * interval[0], replicas * (interval[1] or 0.0)
    verdict: TargetVerdict = "met" if low >= limit else "missed" if high < limit else "uncertain"
    return MeasuredOutcome(
        target={"metric": metric, "limit": limit},
        measured=round(replicas * measured, _DIGITS),
        interval=_rounded((low, high)),
        predicted=None,
        verdict=verdict,
    )


def _ceiling_outcome(
    metric: str, limit: float, measured: float, interval: Interval
) -> MeasuredOutcome:
    return MeasuredOutcome(
        target={"metric": metric, "limit": limit},
        measured=round(measured, _DIGITS),
        interval=_rounded(interval),
        predicted=None,
        verdict=_ceiling(interval, limit),
    )


def _ceiling(interval: Interval, limit: float) -> TargetVerdict:
    low, high = interval
    if high is not None and high <= limit:
        return "met"
    return "missed" if low > limit else "uncertain"


def _rounded(interval: Interval) -> Interval:
    low, high = interval
    return round(low, _DIGITS), None if high is None else round(high, _DIGITS)


def _predicted(performance: Performance | None) -> dict[str, float]:
    if performance is None:
        return {}
    figures = {
        f"{metric}_ms_{name}": float(getattr(getattr(performance, f"{metric}_ms"), name))
        for metric in ("ttft", "tpot", "itl", "e2el")
        for name in ("mean", "p50", "p90", "p95", "p99")
    }
    rates = ("requests_per_s", "output_tokens_per_s", "preemptions_per_request")
    figures |= {name: float(getattr(performance, name)) for name in rates}
    return {name: round(value, _DIGITS) for name, value in figures.items()}


def _measured(point: LoadPoint) -> dict[str, float]:
    figures = {
        f"{metric}_ms_{name}": float(getattr(getattr(point, f"{metric}_ms"), name))
        for metric in ("ttft", "tpot", "itl", "e2el")
        for name in ("mean", "p50", "p90", "p95", "p99")
    }
    return figures | {
        "requests_per_s": point.requests_per_s,
        "output_tokens_per_s": point.output_tokens_per_s,
    }


def _errors(predicted: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return how far each prediction is off, in percent of what was measured."""
    return {
        name: round(100 * (predicted[name] - value) / value, 2)
        for name, value in measured.items()
        if name in predicted and value
    }


def _startup_prediction(predicted: Estimate | None) -> StartupFigures:
    memory = predicted.memory if predicted else None
    if memory is None:
        return StartupFigures()
    return StartupFigures(
        weights_gib=memory.weights_gib,
        kv_cache_gib=memory.kv_cache_gib,
        kv_cache_tokens=memory.kv_cache_tokens,
        max_concurrency=memory.max_concurrency,
        cuda_graphs_gib=memory.cuda_graphs_gib,
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def _pool_gib(config: Mapping[str, str]) -> float | None:
    size = _number(config.get("kv_cache_memory_bytes"))
    return None if size is None else round(size / 1024**3, 6)
