"""What latency and throughput must hold."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Milliseconds, NonNegativeFloat, PositiveFloat, Response, Value

LatencyMetric = Literal["ttft", "tpot", "itl", "e2el"]
Percentile = Literal[50, 90, 95, 99, "mean"]
TargetVerdict = Literal["met", "missed", "uncertain"]


class LatencyTarget(Value, frozen=True, kw_only=True):
    """One limit: this metric, at this percentile, in milliseconds."""

    metric: LatencyMetric
    percentile: Percentile
    limit_ms: Milliseconds


class Slo(Value, frozen=True, kw_only=True):
    """All that must hold at once."""

    targets: Annotated[list[LatencyTarget], Meta(max_length=32)] = []
    min_requests_per_s: PositiveFloat | None = None
    min_output_tokens_per_s: PositiveFloat | None = None
    max_preemptions_per_request: NonNegativeFloat | None = None
    max_cost_per_million_output_tokens: PositiveFloat | None = None


class TargetOutcome(Response, frozen=True, kw_only=True):
    """One target against its prediction; the margin is relative to the limit, negative when missed.

    `predicted_ms` is set for latencies, `predicted` for the other limits.
    """

    target: dict[str, float | str]
    predicted_ms: float | None
    predicted: float | None
    margin: float
    verdict: TargetVerdict
