"""What a filled workload asks of one configuration: lengths, live tokens, load."""

import math
from functools import lru_cache

import msgspec
import numpy as np

from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    GammaArrivals,
    Lengths,
    LognormalLength,
    PoissonArrivals,
    Trace,
    Workload,
)
from service.tuning.lengths import has_spread, max_tokens, mean_tokens, quantiles_tokens

_GRID = (np.arange(400) + 0.5) / 400
"""Quantiles that stand for a distribution when its moments are summed."""
_P99 = np.array([0.99])
_KEPT = 256
_LARGEST_KEPT_BYTES = 1 << 15
"""What is remembered: so many pairs of distributions, none described in more bytes."""


class _Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a demand that follow from the lengths alone."""

    prompt_mean_tokens: float
    prompt_p99_tokens: float
    output_mean_tokens: float
    output_longest_tokens: float
    """The longest answer: the upper end, or the 99th percentile of a long tail."""
    live_mean_tokens: float
    """Tokens a running request holds at a random moment, prompt included."""
    live_sd_tokens: float
    has_spread: bool


class Demand(_Lengths, frozen=True, kw_only=True):
    """Lengths and load of a workload in the figures that choices are made from."""

    shared_prefix_tokens: int
    max_request_tokens: int | None
    requests_per_s: float | None
    """Mean rate of an open loop; None for closed loops and batches."""
    max_concurrency: int | None
    """Requests in flight of a closed loop, or of a batch all of them."""


def demand_of(workload: Workload) -> Demand:
    """Return the demand of a filled workload (lengths and arrivals set)."""
    prompt, output = workload.prompt_tokens, workload.output_tokens
    if prompt is None or output is None or workload.arrivals is None:
        raise ValueError("fill the workload first")
    content = msgspec.msgpack.encode((prompt, output))
    look = _looked_at if len(content) <= _LARGEST_KEPT_BYTES else _looked_at.__wrapped__
    return Demand(
        **msgspec.structs.asdict(look(content)),
        shared_prefix_tokens=workload.shared_prefix_tokens or 0,
        max_request_tokens=workload.max_request_tokens,
        requests_per_s=requests_per_s(workload.arrivals),
        max_concurrency=_concurrency(workload.arrivals),
    )


@lru_cache(maxsize=_KEPT)
def _looked_at(content: bytes) -> _Lengths:
    """Return the figures of prompt and output lengths."""
    prompt, output = msgspec.msgpack.decode(content, type=tuple[Lengths, Lengths])
    spread = has_spread(output)
    live_mean, live_sd = _live_tokens(prompt, output, spread=spread)
    return _Lengths(
        prompt_mean_tokens=mean_tokens(prompt),
        prompt_p99_tokens=float(quantiles_tokens(prompt, _P99)[0]),
        output_mean_tokens=mean_tokens(output),
        output_longest_tokens=longest_tokens(output),
        live_mean_tokens=live_mean,
        live_sd_tokens=live_sd,
        has_spread=spread,
    )


def longest_tokens(lengths: Lengths) -> float:
    """Return the upper end of a bounded distribution, the 99th percentile of a lognormal."""
    if isinstance(lengths, LognormalLength):
        return lengths.p99
    return float(max_tokens(lengths))


def requests_per_s(arrivals: Arrivals) -> float | None:
    """Return the mean rate of open-loop arrivals, None when clients wait for answers."""
    match arrivals:
        case PoissonArrivals() | GammaArrivals():
            return arrivals.requests_per_s
        case Trace():
            span_s = max(arrivals.at_s) - min(arrivals.at_s)
            return len(arrivals.at_s) / span_s if span_s > 0 else None
        case _:
            return None


def _concurrency(arrivals: Arrivals) -> int | None:
    match arrivals:
        case ClosedLoop():
            return arrivals.max_concurrency
        case BatchArrivals():
            return arrivals.num_requests
        case Trace() if requests_per_s(arrivals) is None:
            return len(arrivals.at_s)
        case _:
            return None


def _live_tokens(prompt: Lengths, output: Lengths, *, spread: bool) -> tuple[float, float]:
    """Return mean and standard deviation of the tokens that a running request holds.

    Long answers are seen more often at a random moment: with output O the part written so far
    has mean E[O^2] / (2 E[O]) and second moment E[O^3] / (3 E[O]). Answers of equal length
    start and end together, so all of them count at their full length at once.
    """
    prompts, outputs = quantiles_tokens(prompt, _GRID), quantiles_tokens(output, _GRID)
    mean_prompt, mean_output = mean_tokens(prompt), mean_tokens(output)
    if not spread:
        return mean_prompt + mean_output, float(prompts.std())
    written = float((outputs**2).mean() / (2 * outputs.mean()))
    written_square = float((outputs**3).mean() / (3 * outputs.mean()))
    variance = float(prompts.var()) + max(0.0, written_square - written**2)
    return mean_prompt + written, math.sqrt(variance)
