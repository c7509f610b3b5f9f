"""How sure a prediction is: 80 % bands from residuals on configurations the fit had not seen.

The table holds, per metric and regime, the factors that measured over predicted fell between in
the middle 80 % of held-out groups (`benchmarks/fit_latency.py`).
"""

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from service.tuning.latency.calibration import Calibration
    from service.tuning.simulation.metrics import Summary

TIGHT_KV_DEMAND = 0.85
"""Demand over capacity of the KV cache or the sequence limit from which queueing decides."""
_TAIL_WIDENING = {"mean": 1.0, "p50": 1.0, "p90": 1.15, "p95": 1.25, "p99": 1.5}
"""How much wider, on the log scale, tails are than the median."""


class Regime(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how sure a prediction is."""

    classes: tuple[str, ...]
    is_burst: bool
    is_open: bool
    kv_demand: float
    is_speculative: bool = False
    is_distributed: bool = False
    """Pipeline stages, several nodes, shared experts of data-parallel ranks, context parallel."""


class BandTable(msgspec.Struct, frozen=True, kw_only=True):
    """Log factors (low, high) by metric and regime, and the classes that were measured."""

    version: str
    log_factors: dict[str, dict[str, tuple[float, float]]]
    known_classes: dict[str, int]
    unknown_widening: float
    unmodelled_widening: float


@cache
def band_table() -> BandTable:
    """Return the table that ships with this release."""
    text = resources.files("service.tuning.latency").joinpath("data/bands.json").read_text("utf-8")
    return msgspec.convert(json.loads(text), BandTable)


def log_factors(metric: str, regime: Regime) -> tuple[float, float]:
    """Return the logarithms of the factors that bound 80 % of measured over predicted."""
    table = band_table()
    rows = table.log_factors[metric]
    low, high = rows.get(_cell(regime), rows["all"])
    widening = 1.0
    if any(name not in table.known_classes for name in regime.classes):
        widening *= table.unknown_widening
    if regime.is_speculative or regime.is_distributed:
        widening *= table.unmodelled_widening
    return low * widening, high * widening


def _cell(regime: Regime) -> str:
    if regime.is_burst:
        return "burst"
    if regime.is_open:
        return "open"
    return "tight" if regime.kv_demand > TIGHT_KV_DEMAND else "roomy"


def performance_band(
    *,
    ttft: "Summary",
    tpot: "Summary",
    itl: "Summary",
    e2el: "Summary",
    output_tokens_per_s: float,
    requests_per_s: float,
    regime: Regime,
    calibration: "Calibration | None" = None,
) -> dict[str, list[float]]:
    """Return the 80 % bands of a prediction, milliseconds and rates, by `<metric>_<statistic>`."""
    bands: dict[str, list[float]] = {}
    for name, summary, metric in (
        ("ttft_ms", ttft, "ttft"),
        ("tpot_ms", tpot, "tpot"),
        ("itl_ms", itl, "tpot"),
        ("e2el_ms", e2el, "tpot"),
    ):
        factors = _factors(metric, regime=regime, calibration=calibration)
        for statistic, widening in _TAIL_WIDENING.items():
            value = getattr(summary, statistic) * 1e3
            bands[f"{name}_{statistic}"] = _around(value, factors, widening)
    factors = _factors("output_tokens_per_s", regime=regime, calibration=calibration)
    bands["output_tokens_per_s"] = _around(output_tokens_per_s, factors, 1.0)
    bands["requests_per_s"] = _around(requests_per_s, factors, 1.0)
    return bands


def _factors(
    metric: str, *, regime: Regime, calibration: "Calibration | None"
) -> tuple[float, float]:
    factors = log_factors(metric, regime)
    return factors if calibration is None else calibration.narrowed(metric, factors)


def _around(value: float, factors: tuple[float, float], widening: float) -> list[float]:
    import math  # noqa: PLC0415

    low, high = factors
    return [value * math.exp(low * widening), value * math.exp(high * widening)]
