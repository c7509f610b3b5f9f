"""Targets against predictions: met, missed, or not sure within the band."""

from collections.abc import Iterator

from api_schemas.estimate import Percentiles, Performance
from api_schemas.slo import LatencyTarget, Slo, TargetOutcome, TargetVerdict


def judge_slo(performance: Performance, slo: Slo) -> list[TargetOutcome]:
    """Return every limit with its prediction, margin and verdict.

    A limit is met or missed only when the whole 80 % band lies on that side; between, the verdict
    is `uncertain`. A cost ceiling is judged where prices are known, not here.
    """
    return [
        *_latencies(performance, slo),
        *_floors(performance, slo),
        *_preemptions(performance, slo),
    ]


def _latencies(performance: Performance, slo: Slo) -> Iterator[TargetOutcome]:
    for target in slo.targets:
        predicted = _statistic(performance, target)
        low, high = _scaled_band(performance, f"{target.metric}_ms_p50", predicted)
        yield TargetOutcome(
            target={
                "metric": target.metric,
                "percentile": str(target.percentile),
                "limit_ms": target.limit_ms,
            },
            predicted_ms=round(predicted, 3),
            predicted=None,
            margin=round((target.limit_ms - predicted) / target.limit_ms, 4),
            verdict=_verdict(low, high, limit=target.limit_ms),
        )


def _statistic(performance: Performance, target: LatencyTarget) -> float:
    percentiles: Percentiles = getattr(performance, f"{target.metric}_ms")
    name = "mean" if target.percentile == "mean" else f"p{target.percentile}"
    value: float = getattr(percentiles, name)
    return value


_RUN_DOWN = 0.1
"""A finite run ends with its last answers, so what is served in full measures up to this less."""


def _floors(performance: Performance, slo: Slo) -> Iterator[TargetOutcome]:
    floors = {
        "requests_per_s": slo.min_requests_per_s,
        "output_tokens_per_s": slo.min_output_tokens_per_s,
    }
    for metric, limit in floors.items():
        if limit is None:
            continue
        predicted: float = getattr(performance, metric)
        least = limit if performance.saturated else limit * (1 - _RUN_DOWN)
        low, high = _scaled_band(performance, "output_tokens_per_s", predicted)
        yield TargetOutcome(
            target={"metric": metric, "limit": limit},
            predicted_ms=None,
            predicted=round(predicted, 4),
            margin=round((predicted - least) / limit, 4),
            verdict=_flipped(_verdict(low, high, limit=least)),
        )


def _preemptions(performance: Performance, slo: Slo) -> Iterator[TargetOutcome]:
    limit = slo.max_preemptions_per_request
    if limit is None:
        return
    predicted = performance.preemptions_per_request
    margin = (limit - predicted) / limit if limit > 0 else -float(predicted > 0)
    yield TargetOutcome(
        target={"metric": "preemptions_per_request", "limit": limit},
        predicted_ms=None,
        predicted=round(predicted, 4),
        margin=round(margin, 4),
        verdict="met" if predicted <= limit else "missed",
    )


def _scaled_band(performance: Performance, key: str, predicted: float) -> tuple[float, float]:
    """Return the 80 % band carried over from the statistic it was measured for.

    Bands are calibrated for p50 and for throughput; another percentile of the same latency gets
    the same factors. Without a calibrated band nothing is certain.
    """
    band = performance.band.get(key)
    centre = (
        performance.output_tokens_per_s
        if key == "output_tokens_per_s"
        else getattr(performance, key.removesuffix("_p50")).p50
    )
    if band is None or centre <= 0:
        return 0.0, float("inf")
    return predicted * band[0] / centre, predicted * band[1] / centre


def _verdict(low: float, high: float, *, limit: float) -> TargetVerdict:
    if high <= limit:
        return "met"
    return "missed" if low > limit else "uncertain"


def _flipped(verdict: TargetVerdict) -> TargetVerdict:
    swap: dict[TargetVerdict, TargetVerdict] = {"met": "missed", "missed": "met"}
    return swap.get(verdict, verdict)
