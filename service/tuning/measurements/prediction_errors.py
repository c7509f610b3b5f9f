"""How far a prediction was off, figure by figure."""

from collections.abc import Iterator

from api_schemas.estimate import Estimate, Percentiles
from api_schemas.measurement import Observed, Statistics

LATENCIES = ("ttft", "tpot", "itl", "e2el")
STATISTICS = ("mean", "p50", "p99")
RATES = ("requests_per_s", "output_tokens_per_s")
KV_CACHE = "kv_cache_tokens"
COMPARED = (
    *(f"{latency}_ms_{statistic}" for latency in LATENCIES for statistic in STATISTICS),
    *RATES,
    KV_CACHE,
)
"""Every figure that is compared, so that whoever counts errors knows how many kinds there are."""


def prediction_errors(observed: Observed, predicted: Estimate) -> dict[str, float]:
    """Return by figure (predicted - measured) / measured, for what is both predicted and measured.

    A latency whose source names no statistic counts as the mean.
    """
    errors = {}
    for name, measured, expected in _pairs(observed, predicted):
        if measured and expected is not None:
            errors[name] = (expected - measured) / measured
    return errors


def _pairs(
    observed: Observed, predicted: Estimate
) -> Iterator[tuple[str, float | None, float | None]]:
    if predicted.memory is not None:
        yield KV_CACHE, observed.kv_cache_tokens, predicted.memory.kv_cache_tokens
    performance = predicted.performance
    if performance is None:
        return
    for latency in LATENCIES:
        measured: Statistics | None = getattr(observed, f"{latency}_ms")
        expected: Percentiles = getattr(performance, f"{latency}_ms")
        if measured is not None:
            yield f"{latency}_ms_mean", measured.mean or measured.unspecified, expected.mean
            yield f"{latency}_ms_p50", measured.p50, expected.p50
            yield f"{latency}_ms_p99", measured.p99, expected.p99
    for rate in RATES:
        yield rate, getattr(observed, rate), getattr(performance, rate)
