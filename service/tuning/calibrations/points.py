"""From a stored measurement to a point that a fit can use."""

import msgspec

from api_schemas.measurement import Measurement, Statistics
from api_schemas.workload import ClosedLoop, GammaArrivals, PoissonArrivals
from service.tuning.accepted_load import accepted_workload
from service.tuning.calibrations.fit import MeasuredPoint
from service.tuning.calibrations.key import ConfigurationKey, configuration_key
from service.tuning.calibrations.schedule import Figure, FigureStatistic
from service.tuning.errors import InvalidRequest
from service.tuning.latency.coefficients import Coefficients
from service.tuning.lengths import mean_tokens
from service.tuning.performance import Prediction, prepare
from service.tuning.simulation.traffic import (
    OPEN_LOOP_REQUESTS,
    WAVES,
    Traffic,
    draw_traffic,
)
from service.tuning.situation import ModelResolver, Situation, look_up

_MOST_WAVES = 30.0
_MS_PER_S = 1e3


def situation_of(measurement: Measurement, *, resolve_model: ModelResolver) -> Situation:
    """Return what was measured with every default filled in.

    Raises:
        TuningError: The model, GPU, version or architecture is unknown.
    """
    return look_up(
        model=measurement.model,
        hardware=measurement.hardware,
        engine=measurement.engine,
        workload=measurement.workload,
        slo=None,
        resolve_model=resolve_model,
    )


def key_of(situation: Situation) -> ConfigurationKey:
    """Return the key of the configuration that was measured."""
    return configuration_key(
        spec=situation.spec,
        node=situation.node,
        config=situation.runnable,
        version=situation.version,
        speculative=situation.speculative,
    )


def point_of(
    measurement: Measurement, situation: Situation, *, coefficients: Coefficients | None = None
) -> MeasuredPoint | None:
    """Return the measurement as a point of a fit; None when it says nothing that a fit can use.

    A run that the memory plan holds impossible is no help either: its batches cannot be simulated.
    """
    is_speculative = situation.speculative is not None or bool(
        situation.effective.speculative_config
    )
    figures = figures_of(measurement, is_speculative=is_speculative)
    if not figures or situation.plan.kv is None:
        return None
    workload = accepted_workload(measurement.workload, max_model_len=situation.plan.max_model_len)
    prediction = prepare(
        spec=situation.spec,
        node=situation.node,
        config=situation.runnable,
        version=situation.version,
        plan=situation.plan,
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
        speculative=situation.speculative,
        coefficients=coefficients,
    )
    try:
        traffic = _traffic(measurement, prediction)
    except InvalidRequest:  # lengths that cannot be drawn
        return None
    pool = measurement.observed.kv_cache_tokens
    if pool is not None:
        prediction = _with_pool(prediction, pool / max(situation.plan.kv.tokens, 1))
    return MeasuredPoint(id=measurement.id, prediction=prediction, traffic=traffic, figures=figures)


def figures_of(measurement: Measurement, *, is_speculative: bool) -> tuple[Figure, ...]:
    """Return what a fit works with: TTFT, TPOT and output throughput.

    Without speculation the gaps in the stream stand for a TPOT that was not measured.
    """
    observed = measurement.observed
    tpot = observed.tpot_ms or (None if is_speculative else observed.itl_ms)
    found = [
        *_latency(observed.ttft_ms, metric="ttft"),
        *_latency(tpot, metric="tpot"),
    ]
    rate = _output_rate(measurement)
    if rate is not None:
        found.append(Figure(metric="output_tokens_per_s", value=rate))
    return tuple(found)


def _latency(values: Statistics | None, *, metric: str) -> list[Figure]:
    """Return the mean, else the median, in seconds.

    A source that does not name its statistic is read as the mean: so are those that were checked.
    """
    if values is None:
        return []
    mean = values.mean or values.unspecified
    value = mean or values.p50
    if value is None:
        return []
    statistic: FigureStatistic = "mean" if mean else "p50"
    return [
        msgspec.convert(
            {"metric": metric, "statistic": statistic, "value": value / _MS_PER_S}, Figure
        )
    ]


def _output_rate(measurement: Measurement) -> float | None:
    observed, outputs = measurement.observed, measurement.workload.output_tokens
    if observed.output_tokens_per_s is not None or observed.requests_per_s is None:
        return observed.output_tokens_per_s
    return observed.requests_per_s * mean_tokens(outputs) if outputs is not None else None


def _traffic(measurement: Measurement, prediction: Prediction) -> Traffic:
    workload, completed = measurement.workload, measurement.observed.completed
    arrivals, waves = workload.arrivals, WAVES
    if isinstance(arrivals, ClosedLoop) and completed is not None:
        waves = min(max(completed / arrivals.max_concurrency, 1.0), _MOST_WAVES)
    if isinstance(arrivals, PoissonArrivals | GammaArrivals) and arrivals.num_requests is None:
        arrivals = msgspec.structs.replace(arrivals, num_requests=completed or OPEN_LOOP_REQUESTS)
        workload = msgspec.structs.replace(workload, arrivals=arrivals)
    return draw_traffic(workload, replicas=prediction.replicas, waves=waves)


def _with_pool(prediction: Prediction, share: float) -> Prediction:
    """Return the prediction with the KV cache that was observed instead of the planned one."""
    blocks = max(round(prediction.limits.num_blocks * share), 1)
    limits = msgspec.structs.replace(prediction.limits, num_blocks=blocks)
    return msgspec.structs.replace(prediction, limits=limits)
