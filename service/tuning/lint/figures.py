"""Figures of an estimate that a later check compares with."""

from api_schemas.estimate import Estimate


def figures_of(estimate: Estimate) -> dict[str, float]:
    """Return point estimates under stable names; absent where nothing was predicted."""
    found: dict[str, float] = {}
    if estimate.memory is not None:
        found["kv_cache_tokens"] = float(estimate.memory.kv_cache_tokens)
    performance = estimate.performance
    if performance is not None:
        found["ttft_ms_p50"] = performance.ttft_ms.p50
        found["tpot_ms_p50"] = performance.tpot_ms.p50
        found["output_tokens_per_s"] = performance.output_tokens_per_s
    return found


def bands_of(estimate: Estimate) -> dict[str, list[float]]:
    """Return the 80 % bands under the same names."""
    found: dict[str, list[float]] = {}
    if estimate.memory is not None:
        found |= estimate.memory.band
    if estimate.performance is not None:
        found |= estimate.performance.band
    return found
