"""Whether latency limits hold, without the words that an answer has for it."""

from collections.abc import Sequence

from api_schemas.estimate import Percentiles, Performance
from api_schemas.slo import LatencyTarget, Percentile

_STATISTICS: dict[Percentile, str] = {50: "p50", 90: "p90", 95: "p95", 99: "p99", "mean": "mean"}


def keeps_latencies(performance: Performance, targets: Sequence[LatencyTarget]) -> bool:
    """Return whether no latency limit is judged to have a negative margin (`verdicts`)."""
    return all(is_kept(target, limited_ms(performance, target)) for target in targets)


def is_kept(target: LatencyTarget, latency_ms: float) -> bool:
    """Return whether a latency is judged to keep its limit; margins are rounded to four digits."""
    return round((target.limit_ms - latency_ms) / target.limit_ms, 4) >= 0


def limited_ms(performance: Performance, target: LatencyTarget) -> float:
    """Return the latency that a target limits, milliseconds."""
    percentiles: Percentiles = getattr(performance, f"{target.metric}_ms")
    value: float = getattr(percentiles, statistic_name(target))
    return value


def statistic_name(target: LatencyTarget) -> str:
    """Return the field of a percentile: p95, or mean."""
    return _STATISTICS[target.percentile]
