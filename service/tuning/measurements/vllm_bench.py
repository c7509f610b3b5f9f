"""The JSON of `vllm bench serve --save-result` (keys as of vLLM 0.8 to 0.33).

`request_rate` is the text "inf" when requests were sent without pause; failed requests do not show
in the exit status of the tool, only in `failed`.
"""

import math

from api_schemas.base import Json
from api_schemas.measurement import Observed, Statistics
from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    Lengths,
    PoissonArrivals,
    SampleLengths,
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

_LATENCIES = ("ttft", "tpot", "itl", "e2el")
_SIGNS = ("request_throughput", "mean_ttft_ms", "output_throughput", "request_rate")
"""Keys that together mark a report of this tool."""


def is_vllm_bench(report: dict[str, Json]) -> bool:
    """Tell whether the keys are those of `vllm bench serve`."""
    return "completed" in report and any(name in report for name in _SIGNS)


def read_vllm_bench(report: dict[str, Json], *, stated: Workload, pointer: str) -> Reading:
    """Return what the report says; what the caller stated of the load wins.

    Raises:
        InvalidRequest: Requests failed, nothing was measured, or the load cannot be told.
    """
    fields = Fields(report, pointer)
    completed = _completed(fields)
    latencies = {name: _latency(fields, name) for name in _LATENCIES}
    _refuse_all_zero(fields, latencies)
    output_tokens = fields.needed("total_output_tokens")
    _refuse_missing_tpot(fields, latencies, output_tokens / completed)
    return Reading(
        tool="vllm_bench",
        pointer=pointer,
        names={f"{name}_ms": f"mean_{name}_ms" for name in _LATENCIES},
        workload=Workload(
            prompt_tokens=stated.prompt_tokens
            or _lengths(fields, "input_lens", "total_input_tokens", completed),
            output_tokens=stated.output_tokens
            or _lengths(fields, "output_lens", "total_output_tokens", completed),
            arrivals=stated.arrivals or _arrivals(fields, completed),
            shared_prefix_tokens=stated.shared_prefix_tokens,
            max_request_tokens=stated.max_request_tokens,
        ),
        observed=Observed(
            ttft_ms=latencies["ttft"],
            tpot_ms=latencies["tpot"],
            itl_ms=latencies["itl"],
            e2el_ms=latencies["e2el"],
            requests_per_s=fields.positive("request_throughput"),
            output_tokens_per_s=fields.positive("output_throughput"),
            total_tokens_per_s=fields.positive("total_token_throughput"),
            duration_s=fields.positive("duration"),
            completed=completed,
            failed=0,
        ),
    )


def _completed(fields: Fields) -> int:
    completed = completed_requests(fields, completed="completed", failed="failed")
    asked = fields.number("num_prompts")
    if asked is not None and asked > completed:
        raise InvalidRequest(
            f"only {completed} of {asked:.0f} requests completed", pointer=fields.at("completed")
        )
    return completed


def _latency(fields: Fields, name: str) -> Statistics | None:
    values = {"mean": fields.number(f"mean_{name}_ms")}
    for percentile in PERCENTILES:
        values[percentile] = fields.number(f"{percentile}_{name}_ms")
    if values["p50"] is None:
        values["p50"] = fields.number(f"median_{name}_ms")
    return statistics(values)


def _refuse_all_zero(fields: Fields, latencies: dict[str, Statistics | None]) -> None:
    if any(latencies.values()):
        return
    named = next((name for name in fields.values if name.endswith("_ms")), "mean_ttft_ms")
    raise InvalidRequest("every latency is zero: nothing was measured", pointer=fields.at(named))


def _refuse_missing_tpot(
    fields: Fields, latencies: dict[str, Statistics | None], output_tokens: float
) -> None:
    """Refuse a TPOT of zero for answers of several tokens: the stream was not read."""
    said_zero = fields.number("mean_tpot_ms") == 0
    if said_zero and latencies["tpot"] is None and output_tokens > 1:
        raise InvalidRequest(
            f"TPOT is zero for answers of {output_tokens:.0f} tokens",
            pointer=fields.at("mean_tpot_ms"),
        )


def _lengths(fields: Fields, each: str, total: str, completed: int) -> Lengths:
    """Return the lengths of the requests: each one of a detailed report, else their mean."""
    listed = fields.values.get(each)
    if isinstance(listed, list) and listed:
        if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in listed):
            raise InvalidRequest(f"{each} must hold token counts", pointer=fields.at(each))
        tokens = [max(int(n), 1) for n in listed]
        return tokens[0] if len(set(tokens)) == 1 else SampleLengths(tokens=tokens)
    mean = fields.needed(total) / completed
    if mean < 1:
        raise InvalidRequest(
            f"{total} is {mean:.2f} per request: state the lengths in workload",
            pointer=fields.at(total),
        )
    return round(mean)


def _arrivals(fields: Fields, completed: int) -> Arrivals:
    if fields.values.get("ramp_up_strategy"):
        raise InvalidRequest(
            "the rate was ramped up: state the load in workload.arrivals",
            pointer=fields.at("ramp_up_strategy"),
        )
    rate = _rate(fields)
    concurrency = fields.positive("max_concurrency")
    if rate is None:
        if concurrency is None:
            return BatchArrivals(num_requests=completed)
        return ClosedLoop(max_concurrency=min(int(concurrency), completed))
    if concurrency is not None:
        raise InvalidRequest(
            "a rate and a cap limit this load together: state which one did in workload.arrivals",
            pointer=fields.at("max_concurrency"),
        )
    burstiness = fields.positive("burstiness") or 1.0
    if burstiness == 1.0:
        return PoissonArrivals(requests_per_s=rate)
    return GammaArrivals(requests_per_s=rate, burstiness=burstiness)


def _rate(fields: Fields) -> float | None:
    """Return requests per second; None for no limit, which the tool writes as the text inf."""
    value = fields.values.get("request_rate")
    text = value.strip().lower() if isinstance(value, str) else value
    if text in {"inf", "infinity"} or (isinstance(text, float) and math.isinf(text)):
        return None
    if isinstance(text, str):
        try:
            text = float(text)
        except ValueError:
            text = None
    if isinstance(text, bool) or not isinstance(text, int | float) or not text > 0:
        raise InvalidRequest(
            'request_rate must be a number above zero or "inf"', pointer=fields.at("request_rate")
        )
    return float(text)
