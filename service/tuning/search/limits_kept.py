"""Whether latency limits hold, without the words that an answer has for it."""

from collections.abc import Sequence

from api_schemas.estimate import Percentiles, Performance
from api_schemas.slo import LatencyTarget


def keeps_latencies(performance: Performance, targets: Sequence[LatencyTarget]) -> bool:
    """Return whether no latency limit is judged to have a negative margin (`verdicts`)."""
    return all(
        round((target.limit_ms - limited_ms(performance, target)) / target.limit_ms, 4) >= 0
        for target in targets
    )


def limited_ms(performance: Performance, target: LatencyTarget) -> float:
    """Return the latency that a target limits, milliseconds."""
    percentiles: Percentiles = getattr(performance, f"{target.metric}_ms")
    name = "mean" if target.percentile == "mean" else f"p{target.percentile}"
    value: float = getattr(percentiles, name)
    return value
