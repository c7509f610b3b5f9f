"""`vllm bench serve` of the measured environment: its command, and its result held to account.

Its exit code proves nothing: it is 0 when nothing listens, when every request was refused, and
when the engine died half-way (seen with vllm 0.32.0). So a result counts only when every request
came back with exactly the tokens that were asked for.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from api_schemas.estimate import Percentiles
from api_schemas.slo import Slo
from api_schemas.workload import BatchArrivals, ClosedLoop, GammaArrivals, PoissonArrivals, Trace
from service.tuning.played_run import PlayedRun
from service.tuning.simulation.traffic import mean_arrival_rate
from workers.traffic import Load, chunk_tokens, fixed_tokens, range_ratio

_READY_CHECK_S = 10
_LATEST_START_S = 60.0
"""No client waits longer before its first request; where its figures say so they contradict."""
_METRICS = ("ttft", "tpot", "itl", "e2el")
_PERCENTILES = (50, 90, 95, 99)


class RejectedResult(Exception):
    """A result that proves nothing; the message says why."""


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the client measured; samples are milliseconds."""

    completed: int
    failed: int
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    goodput_requests_per_s: float | None
    latencies: dict[str, Percentiles]
    samples: dict[str, list[float]]
    played: PlayedRun
    """What was sent, for a prediction of that very run."""


def bench_command(
    load: Load,
    *,
    executable: str,
    base_url: str,
    served_name: str,
    tokenizer: str,
    slo: Slo | None,
    dataset: Path,
    result: Path,
) -> list[str]:
    """Return the argument list of the benchmark client for this load."""
    return [
        executable,
        "bench",
        "serve",
        *("--backend", "vllm", "--base-url", base_url, "--endpoint", "/v1/completions"),
        *("--model", served_name, "--tokenizer", tokenizer),
        *_data(load, dataset),
        *_arrivals(load),
        *("--num-prompts", str(load.num_requests)),
        *("--seed", str(load.seed), "--ignore-eos", "--temperature", "0", "--disable-tqdm"),
        *("--ready-check-timeout-sec", str(_READY_CHECK_S)),
        *("--percentile-metrics", ",".join(_METRICS)),
        *("--metric-percentiles", ",".join(map(str, _PERCENTILES))),
        *_goodput(slo),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(result.parent), "--result-filename", result.name),
    ]


def read_result(content: bytes, load: Load) -> BenchResult:
    """Return the result of a load.

    Raises:
        RejectedResult: It is no result, or not of the load that was offered.
    """
    try:
        raw: dict[str, Any] = json.loads(content)
        _check(raw, load)
        return _parse(raw, load)
    except (KeyError, TypeError, ValueError) as error:
        raise RejectedResult(f"the client's result cannot be read: {error!r}") from error


def _data(load: Load, dataset: Path) -> list[str]:
    if load.requests is not None:
        timed = "--self-timed" if isinstance(load.arrivals, Trace) else "--no-self-timed"
        return [
            *("--dataset-name", "timed_trace", "--dataset-path", str(dataset), timed),
            *("--timed-trace-chunk-hash-size", str(chunk_tokens(load))),
        ]
    prompt, output = range_ratio(load.prompt_tokens), range_ratio(load.output_tokens)
    if prompt is None or output is None:
        raise ValueError("these lengths need their requests drawn")
    words = ["--dataset-name", "random"]
    words += ["--random-input-len", str(prompt[0] - load.shared_prefix_tokens)]
    words += ["--random-output-len", str(output[0])]
    if load.shared_prefix_tokens:
        words += ["--random-prefix-len", str(load.shared_prefix_tokens)]
    if prompt[1] or output[1]:
        words += ["--random-range-ratio", _ratios(prompt[1], output[1])]
    return words


def _ratios(prompt: float, output: float) -> str:
    if prompt == output:
        return str(prompt)
    return json.dumps({"input": prompt, "output": output}, separators=(",", ":"))


def _arrivals(load: Load) -> list[str]:
    match load.arrivals:
        case PoissonArrivals():
            return ["--request-rate", str(load.arrivals.requests_per_s)]
        case GammaArrivals():
            rate, shape = load.arrivals.requests_per_s, load.arrivals.burstiness
            return ["--request-rate", str(rate), "--burstiness", str(shape)]
        case ClosedLoop():
            return ["--max-concurrency", str(load.arrivals.max_concurrency)]
        case BatchArrivals() | Trace():
            return []
        case _:
            raise ValueError("people must be converted to a request rate first")


def _goodput(slo: Slo | None) -> list[str]:
    """Return the limits for the client's own goodput, which knows TTFT, TPOT and E2EL."""
    targets = slo.targets if slo is not None else []
    limits = {t.metric: t.limit_ms for t in targets if t.metric in ("ttft", "tpot", "e2el")}
    return ["--goodput", *(f"{name}:{limit}" for name, limit in limits.items())] if limits else []


def _check(raw: Mapping[str, Any], load: Load) -> None:
    completed, failed = int(raw["completed"]), int(raw["failed"])
    if completed != load.num_requests or failed:
        reasons = sorted({str(error)[-300:] for error in raw.get("errors", []) if error})
        said = f": {reasons[0]}" if reasons else ""
        raise RejectedResult(
            f"{completed} of {load.num_requests} requests completed, {failed} failed{said}"
        )
    lengths = [int(length) for length in raw["output_lens"]]
    expected = sum(item.output_tokens for item in load.requests or ())
    fixed = fixed_tokens(load.output_tokens) if load.requests is None else None
    if fixed is not None:
        expected = fixed * load.num_requests
    if expected and sum(lengths) != expected:
        raise RejectedResult(f"{sum(lengths)} output tokens came back instead of {expected}")
    if min(lengths) < 1:
        raise RejectedResult("a request came back without a token")


def _parse(raw: Mapping[str, Any], load: Load) -> BenchResult:
    goodput, samples = raw.get("request_goodput"), _samples(raw)
    return BenchResult(
        completed=int(raw["completed"]),
        failed=int(raw["failed"]),
        duration_s=float(raw["duration"]),
        requests_per_s=float(raw["request_throughput"]),
        output_tokens_per_s=float(raw["output_throughput"]),
        goodput_requests_per_s=None if goodput is None else float(goodput),
        latencies={metric: _percentiles(raw, metric) for metric in _METRICS},
        samples=samples,
        played=_played(raw, load, e2el_ms=samples["e2el"]),
    )


def _played(raw: Mapping[str, Any], load: Load, *, e2el_ms: list[float]) -> PlayedRun:
    """Return the requests in the order in which they were sent."""
    arrivals, sent_s = load.arrivals, _sent_s(raw, e2el_ms=e2el_ms)
    prompts = [max(int(length), 1) for length in raw["input_lens"]]
    outputs = [int(length) for length in raw["output_lens"]]
    times = sent_s or [0.0] * len(prompts)
    order = list(range(len(prompts)))
    if not isinstance(arrivals, ClosedLoop):
        order.sort(key=times.__getitem__)
    return PlayedRun(
        prompt_tokens=tuple(prompts[place] for place in order),
        output_tokens=tuple(outputs[place] for place in order),
        sent_s=tuple(times[place] for place in order) if sent_s else None,
        max_concurrency=arrivals.max_concurrency if isinstance(arrivals, ClosedLoop) else None,
        offered_requests_per_s=mean_arrival_rate(arrivals),
    )


def _sent_s(raw: Mapping[str, Any], *, e2el_ms: list[float]) -> list[float] | None:
    """Return when requests were sent, from the client's beginning; None where it does not say.

    Its clock has any zero; it stopped with the last answer, `duration` after it began.
    """
    starts = [float(value) for value in raw.get("start_times") or ()]
    if len(starts) != len(e2el_ms):
        return None
    end = max(start + took / 1000 for start, took in zip(starts, e2el_ms, strict=True))
    first = min(starts)
    began = min(max(end - float(raw["duration"]), first - _LATEST_START_S), first)
    return [start - began for start in starts]


def _percentiles(raw: Mapping[str, Any], metric: str) -> Percentiles:
    figures = {f"p{p}": float(raw[f"p{p}_{metric}_ms"]) for p in _PERCENTILES}
    return Percentiles(mean=float(raw[f"mean_{metric}_ms"]), **figures)


def _samples(raw: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the latencies of single requests; TPOT is that of requests with several tokens."""
    ttft = [1000 * float(value) for value in raw["ttfts"]]
    gaps = [[1000 * float(gap) for gap in request] for request in raw["itls"]]
    e2el = [first + sum(rest) for first, rest in zip(ttft, gaps, strict=True)]
    lengths = [int(length) for length in raw["output_lens"]]
    tpot = [
        (total - first) / (length - 1)
        for total, first, length in zip(e2el, ttft, lengths, strict=True)
        if length > 1
    ]
    return {"ttft": ttft, "tpot": tpot, "e2el": e2el, "itl": [g for row in gaps for g in row]}
