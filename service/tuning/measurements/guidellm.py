"""GuideLLM reports (JSON of 0.8): one measurement per benchmark.

What it calls time per output token is the whole latency over all tokens, first one included. Its
inter-token latency of a request, (last token - first token) / (tokens - 1), is our TPOT and is
taken as such. Its request latency is in seconds.
"""

from collections.abc import Iterator

from api_schemas.base import Json
from api_schemas.measurement import Observed, Statistics
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    PoissonArrivals,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.measurements.reading import (
    PERCENTILES,
    Fields,
    Reading,
    completed_requests,
    statistics,
)

_TPOT_NOTE = (
    "GuideLLM's inter-token latency is (last token - first token) / (tokens - 1) of a request, our "
    "TPOT; what it calls time per output token includes the first one and was left out."
)
_NAMES = {
    "ttft_ms": "metrics/time_to_first_token_ms",
    "tpot_ms": "metrics/inter_token_latency_ms",
    "e2el_ms": "metrics/request_latency",
}
_TOO_FAST = 1.1
"""Achieved over requested rate from which the requested one is not believed: the Poisson profile
of 0.8.1 was seen to send up to ten times faster than asked."""
_MS_PER_S = 1e3
_EVEN = 100.0
"""Burstiness that stands for equal gaps."""


def is_guidellm(report: dict[str, Json]) -> bool:
    """Tell whether the keys are those of a GuideLLM report."""
    benchmarks = report.get("benchmarks")
    return isinstance(benchmarks, list) and all(
        isinstance(entry, dict) and "metrics" in entry for entry in benchmarks
    )


def read_guidellm(report: dict[str, Json], *, stated: Workload, pointer: str) -> list[Reading]:
    """Return every benchmark of the report; what the caller stated of the load wins.

    Raises:
        InvalidRequest: Requests failed, nothing was measured, or the load cannot be told.
    """
    benchmarks = report["benchmarks"]
    if not benchmarks:
        raise InvalidRequest("the report holds no benchmark", pointer=f"{pointer}/benchmarks")
    if len(benchmarks) > 1 and stated.arrivals is not None:
        raise InvalidRequest(
            "the report holds several loads: leave arrivals out, or send one benchmark",
            pointer="/workload/arrivals",
        )
    return [
        _benchmark(Fields(entry, f"{pointer}/benchmarks/{index}"), stated=stated)
        for index, entry in enumerate(benchmarks)
    ]


def _benchmark(fields: Fields, *, stated: Workload) -> Reading:
    metrics = fields.inside("metrics")
    totals = metrics.inside("request_totals")
    completed = completed_requests(totals, completed="successful", failed="errored")
    tpot = _statistics(metrics, "inter_token_latency_ms")
    observed = Observed(
        ttft_ms=_statistics(metrics, "time_to_first_token_ms"),
        tpot_ms=tpot,
        e2el_ms=_statistics(metrics, "request_latency", scale=_MS_PER_S),
        requests_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        total_tokens_per_s=_mean(metrics, "tokens_per_second"),
        duration_s=fields.positive("duration"),
        completed=completed,
        failed=0,
    )
    if observed.ttft_ms is None and tpot is None and observed.e2el_ms is None:
        raise InvalidRequest(
            "every latency is zero or absent: nothing was measured",
            pointer=metrics.at("time_to_first_token_ms"),
        )
    arrivals, notes = _arrivals(fields, stated, achieved=observed.requests_per_s, number=completed)
    return Reading(
        tool="guidellm",
        pointer=fields.pointer,
        names=_NAMES,
        workload=Workload(
            prompt_tokens=stated.prompt_tokens or _tokens(metrics, "prompt_token_count"),
            output_tokens=stated.output_tokens or _tokens(metrics, "output_token_count"),
            arrivals=arrivals,
            shared_prefix_tokens=stated.shared_prefix_tokens,
            max_request_tokens=stated.max_request_tokens,
        ),
        observed=observed,
        notes=(_TPOT_NOTE, *notes) if tpot is not None else tuple(notes),
    )


def _statistics(metrics: Fields, name: str, *, scale: float = 1.0) -> Statistics | None:
    found = metrics.inside(name).inside("successful")
    percentiles = found.inside("percentiles")
    values = {"mean": found.number("mean")}
    values |= {percentile: percentiles.number(percentile) for percentile in PERCENTILES}
    if values["p50"] is None:
        values["p50"] = found.number("median")
    return statistics(values, scale=scale)


def _mean(metrics: Fields, name: str) -> float | None:
    return metrics.inside(name).inside("successful").positive("mean")


def _tokens(metrics: Fields, name: str) -> int:
    mean = metrics.inside(name).inside("successful").number("mean")
    if mean is None or mean < 1:
        raise InvalidRequest(
            "the report does not tell this length: state it in workload", pointer=metrics.at(name)
        )
    return round(mean)


def _arrivals(
    fields: Fields, stated: Workload, *, achieved: float | None, number: int
) -> tuple[Arrivals, list[str]]:
    if stated.arrivals is not None:
        return stated.arrivals, []
    strategy = next(_strategies(fields), None)
    kind = strategy.values.get("type_") if strategy is not None else None
    if strategy is None or not isinstance(kind, str):
        raise InvalidRequest(
            "the report does not tell its load: state workload.arrivals",
            pointer=fields.at("config"),
        )
    match kind:
        case "synchronous":
            return ClosedLoop(max_concurrency=1), []
        case "concurrent":
            streams = _first(strategy, ("streams", "max_concurrency", "concurrency"))
            return ClosedLoop(max_concurrency=int(streams)), []
        case "throughput":
            limit = strategy.positive("max_concurrency")
            return (
                ClosedLoop(max_concurrency=int(limit))
                if limit is not None
                else BatchArrivals(num_requests=number)
            ), []
        case "constant":
            rate, notes = _open_loop(_first(strategy, ("rate",)), achieved=achieved)
            return GammaArrivals(requests_per_s=rate, burstiness=_EVEN), notes
        case "poisson":
            rate, notes = _open_loop(_first(strategy, ("rate",)), achieved=achieved)
            return PoissonArrivals(requests_per_s=rate), notes
        case _:
            raise InvalidRequest(
                f"the load {kind!r} is not known: state workload.arrivals",
                pointer=strategy.at("type_"),
            )


def _open_loop(rate: float, *, achieved: float | None) -> tuple[float, list[str]]:
    if achieved is not None and achieved > rate * _TOO_FAST:
        note = f"Requests came at {achieved:.2f}/s although {rate:.2f}/s were asked for."
        return achieved, [note]
    return rate, []


def _strategies(fields: Fields) -> Iterator[Fields]:
    """Yield the places where releases of the tool say how requests were sent."""
    config = fields.inside("config")
    for place in (config, fields.inside("scheduler_state"), fields):
        for name in ("strategy", "profile"):
            if isinstance(place.values.get(name), dict):
                yield place.inside(name)
    if "type_" in config.values:
        yield config


def _first(strategy: Fields, names: tuple[str, ...]) -> float:
    value = next((strategy.positive(name) for name in names if strategy.positive(name)), None)
    if value is None:
        raise InvalidRequest(
            f"the load lacks {' or '.join(names)}: state workload.arrivals",
            pointer=strategy.at(names[0]),
        )
    return value
