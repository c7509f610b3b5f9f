"""Targets against predictions: met, missed, or not sure within the band."""

from collections.abc import Iterator

from api_schemas.estimate import Performance
from api_schemas.slo import Slo, TargetOutcome, TargetVerdict
from service.tuning.limits_kept import limited_ms, statistic_name


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
        predicted = limited_ms(performance, target)
        low, high = _band(performance, f"{target.metric}_ms_{statistic_name(target)}")
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


def _floors(performance: Performance, slo: Slo) -> Iterator[TargetOutcome]:
    floors = {
        "requests_per_s": slo.min_requests_per_s,
        "output_tokens_per_s": slo.min_output_tokens_per_s,
    }
    for metric, limit in floors.items():
        if limit is None:
            continue
        predicted: float = getattr(performance, metric)
        low, high = _band(performance, metric)
        yield TargetOutcome(
            target={"metric": metric, "limit": limit},
            predicted_ms=None,
            predicted=round(predicted, 4),
            margin=round((predicted - limit) / limit, 4),
            verdict=_flipped(_verdict(low, high, limit=limit)),
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


def _band(performance: Performance, key: str) -> tuple[float, float]:
    """Return the 80 % band of this figure; without a band nothing is certain."""
    band = performance.band.get(key)
    return (band[0], band[1]) if band is not None else (0.0, float("inf"))


def _verdict(low: float, high: float, *, limit: float) -> TargetVerdict:
    if high <= limit:
        return "met"
    return "missed" if low > limit else "uncertain"


def _flipped(verdict: TargetVerdict) -> TargetVerdict:
    swap: dict[TargetVerdict, TargetVerdict] = {"met": "missed", "missed": "met"}
    return swap.get(verdict, verdict)
