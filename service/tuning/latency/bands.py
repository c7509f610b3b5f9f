"""How sure a prediction is: 80 % bands from residuals on measurements the fit had not seen.

The table holds, per metric and regime, the logarithms of the factors that measured over predicted
fell between in the middle 80 % of held-out figures: of configurations that were never measured,
and of other loads of measured ones. A hardware class scales the former by how far its own figures
strayed, drawn towards all others where it has few (`benchmarks/performance_accuracy.py`).
"""

import json
import math
from functools import cache
from importlib import resources

import msgspec

from service.tuning.latency.calibration import Calibration
from service.tuning.simulation.metrics import Summary

TIGHT_DEMAND = 0.85
"""Demand over capacity from which queueing decides."""
_TAIL_WIDENING = {"mean": 1.0, "p50": 1.0, "p90": 1.15, "p95": 1.25, "p99": 1.5}
"""How much wider, on the log scale, tails are than the median: p99 of held-out runs missed by
about half as much again."""

LogFactors = tuple[float, float]


class Regime(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how sure a prediction is."""

    classes: tuple[str, ...]
    """Generation, era, formats and attention kinds of the configuration."""
    hardware: str
    """Generation and market of the GPU."""
    configuration: str
    """Shape and number format of the model, and the GPU."""
    is_burst: bool
    is_open: bool
    demand: float
    """Sequences that want to run over those that can."""
    is_level: bool = False
    """Clients of a closed loop ask for answers of one length: whether they stay in step, and every
    prompt waits for all others, hangs on whether all answers run to that length."""
    is_unmeasured: bool = False
    """Speculation, several nodes, shared experts of data-parallel ranks, context parallelism:
    modelled by their physics, hardly measured."""


class BandTable(msgspec.Struct, frozen=True, kw_only=True):
    """Log factors (low, high) by metric and regime, and the classes that were measured."""

    version: str
    log_factors: dict[str, dict[str, LogFactors]]
    """Of configurations that were not measured."""
    measured_log_factors: dict[str, dict[str, LogFactors]]
    """Of loads that were not measured, of configurations that were."""
    hardware_scale: dict[str, dict[str, float]]
    measured_hardware_scale: dict[str, dict[str, float]]
    unknown_scale: dict[str, float]
    """Of hardware, number formats or attention that were never measured."""
    known_classes: dict[str, int]
    measured_configurations: dict[str, int]
    unmeasured_widening: float


@cache
def band_table() -> BandTable:
    """Return the table that ships with this release."""
    text = resources.files("service.tuning.latency").joinpath("data/bands.json").read_text("utf-8")
    return msgspec.convert(json.loads(text), BandTable)


def regime_cell(metric: str, regime: Regime) -> str:
    """Return the row of the table that a load belongs to."""
    if regime.is_burst:
        return "burst"
    if regime.is_open:
        return "open"
    if regime.is_level and metric == "ttft":
        return "level"
    return "tight" if regime.demand > TIGHT_DEMAND else "roomy"


def log_factors(metric: str, regime: Regime, *, table: BandTable | None = None) -> LogFactors:
    """Return the logarithms of the factors that bound 80 % of measured over predicted."""
    table = table or band_table()
    is_measured = regime.configuration in table.measured_configurations
    rows = (table.measured_log_factors if is_measured else table.log_factors)[metric]
    low, high = rows.get(regime_cell(metric, regime), rows["all"])
    scale = _scale(metric, regime, table)
    if is_measured:
        scale = table.measured_hardware_scale[metric].get(regime.hardware, 1.0)
    if regime.is_unmeasured:
        scale *= table.unmeasured_widening
    return low * scale, high * scale


def _scale(metric: str, regime: Regime, table: BandTable) -> float:
    """Return how much wider the bands of a configuration are that was not measured."""
    unknown = table.unknown_scale[metric]
    own = table.hardware_scale[metric].get(regime.hardware, unknown)
    is_known = all(name in table.known_classes for name in regime.classes)
    return own if is_known else max(own, unknown)


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that get a band."""

    ttft: Summary
    tpot: Summary
    itl: Summary
    e2el: Summary
    output_tokens_per_s: float
    requests_per_s: float
    ttft_in_step_s: float = 0.0
    """Median TTFT if all clients of a loop stay in step, where they can; 0 else."""


def performance_band(
    predicted: Predicted, *, regime: Regime, calibration: Calibration | None = None
) -> dict[str, list[float]]:
    """Return the 80 % bands of a prediction, by `<metric>_<statistic>`.

    The bands of the median and the mean TTFT reach from the lower of the two to the higher:
    published figures often do not say which they are, and in a closed loop the mean holds the
    first burst. After a calibration, whose points say it, that of the mean lies around the mean.
    Where clients may stay in step, bands of TTFT reach to what they wait then, until measured
    points of the configuration have shown what they do.
    """
    factors = {
        metric: _factors(metric, regime=regime, calibration=calibration)
        for metric in ("ttft", "tpot", "output_tokens_per_s")
    }
    is_shown = calibration is not None and "ttft" in calibration.log_widths
    in_step_s = 0.0 if is_shown else predicted.ttft_in_step_s
    bands = _summary_bands("ttft_ms", predicted.ttft, factors["ttft"], reach_s=in_step_s)
    bands |= _summary_bands("tpot_ms", predicted.tpot, factors["tpot"])
    bands |= _summary_bands("itl_ms", predicted.itl, factors["tpot"])
    low, high = sorted((predicted.ttft.p50, predicted.ttft.mean))
    bands["ttft_ms_p50"] = _between(low * 1e3, max(high, in_step_s) * 1e3, factors["ttft"])
    bands["ttft_ms_mean"] = _mean_ttft_band(predicted, regime, calibration)
    bands |= _end_to_end_bands(predicted, bands)
    for name in ("output_tokens_per_s", "requests_per_s"):
        value = float(getattr(predicted, name))
        bands[name] = _between(value, value, factors["output_tokens_per_s"])
    return bands


def _mean_ttft_band(
    predicted: Predicted, regime: Regime, calibration: Calibration | None
) -> list[float]:
    ttft = predicted.ttft
    low, high = sorted((ttft.p50, ttft.mean))
    below, above = log_factors("ttft", regime)
    if calibration is None or low <= 0:
        return _between(low * 1e3, max(high, predicted.ttft_in_step_s) * 1e3, (below, above))
    reach = (below - math.log(ttft.mean / low), above + math.log(high / ttft.mean))
    return _between(ttft.mean * 1e3, ttft.mean * 1e3, calibration.narrowed("ttft", reach))


def _summary_bands(
    name: str, summary: Summary, factors: LogFactors, *, reach_s: float = 0.0
) -> dict[str, list[float]]:
    low, high = factors
    return {
        f"{name}_{statistic}": _between(
            value * 1e3, max(value, reach_s) * 1e3, (low * widening, high * widening)
        )
        for statistic, widening in _TAIL_WIDENING.items()
        for value in (float(getattr(summary, statistic)),)
    }


def _end_to_end_bands(
    predicted: Predicted, bands: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Return bands of E2EL: those of its two parts, each with its share of the time."""
    result: dict[str, list[float]] = {}
    for statistic in _TAIL_WIDENING:
        total = float(getattr(predicted.e2el, statistic)) * 1e3
        first = min(float(getattr(predicted.ttft, statistic)) * 1e3, total)
        rest = total - first
        ttft, tpot = bands[f"ttft_ms_{statistic}"], bands[f"tpot_ms_{statistic}"]
        middle = float(getattr(predicted.tpot, statistic)) * 1e3
        scale = rest / middle if middle > 0 else 0.0
        base = float(getattr(predicted.ttft, statistic)) * 1e3
        part = first / base if base > 0 else 0.0
        result[f"e2el_ms_{statistic}"] = [ttft[side] * part + tpot[side] * scale for side in (0, 1)]
    return result


def _factors(metric: str, *, regime: Regime, calibration: Calibration | None) -> LogFactors:
    factors = log_factors(metric, regime)
    return factors if calibration is None else calibration.narrowed(metric, factors)


def _between(low: float, high: float, factors: LogFactors) -> list[float]:
    return [low * math.exp(factors[0]), high * math.exp(factors[1])]
