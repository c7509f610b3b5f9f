"""What makes no sense in a workload, each mistake with the field that holds it."""

import math

from api_schemas.workload import (
    FixedLength,
    HistogramLength,
    Lengths,
    LognormalLength,
    SampleLengths,
    Trace,
    UniformLength,
    Workload,
)
from service.tuning.errors import InvalidRequest

_Z99 = 2.3263478740408408
"""99th percentile of the standard normal."""
LARGEST_P99_OVER_MEAN = math.exp(_Z99**2 / 2)
"""About 14.96: no lognormal has a 99th percentile further above its mean."""


def check_workload(workload: Workload, *, pointer: str = "/workload") -> None:
    """Refuse values that contradict themselves or each other.

    Raises:
        InvalidRequest: With the JSON pointer of the field.
    """
    for field in ("prompt_tokens", "output_tokens"):
        lengths: Lengths | None = getattr(workload, field)
        if lengths is not None:
            _check_lengths(lengths, pointer=f"{pointer}/{field}")
    if isinstance(workload.arrivals, Trace):
        _check_trace(workload.arrivals, pointer=f"{pointer}/arrivals")
    _check_against_prompt(workload, pointer=pointer)


def _check_lengths(lengths: Lengths, *, pointer: str) -> None:
    match lengths:
        case UniformLength(low=low, high=high) if low > high:
            raise InvalidRequest(f"low {low} is above high {high}", pointer=f"{pointer}/low")
        case LognormalLength():
            _check_lognormal(lengths, pointer=pointer)
        case HistogramLength():
            _check_histogram(lengths, pointer=pointer)
        case _:
            return


def _check_lognormal(lengths: LognormalLength, *, pointer: str) -> None:
    if lengths.p99 < lengths.mean:
        raise InvalidRequest(
            f"p99 {lengths.p99:g} is below the mean {lengths.mean:g}", pointer=f"{pointer}/p99"
        )
    if lengths.p99 > LARGEST_P99_OVER_MEAN * lengths.mean:
        raise InvalidRequest(
            f"no lognormal with mean {lengths.mean:g} has a p99 of {lengths.p99:g}; at most "
            f"{LARGEST_P99_OVER_MEAN * lengths.mean:.0f}: give a histogram or samples",
            pointer=f"{pointer}/p99",
        )


def _check_histogram(lengths: HistogramLength, *, pointer: str) -> None:
    if len(lengths.upper) != len(lengths.weight):
        raise InvalidRequest(
            f"{len(lengths.upper)} edges but {len(lengths.weight)} weights",
            pointer=f"{pointer}/weight",
        )
    if not sum(lengths.weight) > 0:
        raise InvalidRequest("every weight is zero", pointer=f"{pointer}/weight")
    if any(b <= a for a, b in zip(lengths.upper, lengths.upper[1:], strict=False)):
        raise InvalidRequest("upper edges must rise", pointer=f"{pointer}/upper")


def _check_trace(trace: Trace, *, pointer: str) -> None:
    for field in ("prompt_tokens", "output_tokens"):
        count = len(getattr(trace, field))
        if count != len(trace.at_s):
            raise InvalidRequest(
                f"{len(trace.at_s)} arrival times but {count} entries", pointer=f"{pointer}/{field}"
            )


def _check_against_prompt(workload: Workload, *, pointer: str) -> None:
    """Refuse a request limit that hardly any prompt obeys, and a prefix longer than any prompt."""
    if workload.prompt_tokens is None:
        return
    typical, longest = _typical_and_longest(workload.prompt_tokens)
    limit = workload.max_request_tokens
    if limit is not None and limit <= typical:
        raise InvalidRequest(
            f"{limit} tokens per request leave no room for prompts of {typical:g} tokens",
            pointer=f"{pointer}/max_request_tokens",
        )
    prefix = workload.shared_prefix_tokens
    if prefix is not None and prefix > longest:
        raise InvalidRequest(
            f"a shared prefix of {prefix} tokens is longer than any prompt ({longest:g})",
            pointer=f"{pointer}/shared_prefix_tokens",
        )


def _typical_and_longest(lengths: Lengths) -> tuple[float, float]:
    """Return the mean (of a histogram: the median edge) and the longest length, tokens."""
    match lengths:
        case int():
            return lengths, lengths
        case FixedLength(tokens=tokens):
            return tokens, tokens
        case UniformLength(low=low, high=high):
            return (low + high) / 2, high
        case LognormalLength(mean=mean, p99=p99):
            return mean, p99 * p99 / mean
        case HistogramLength(upper=upper, weight=weight):
            return _median_edge(upper, weight), upper[-1]
        case SampleLengths(tokens=samples):
            return sum(samples) / len(samples), max(samples)


def _median_edge(upper: list[int], weight: list[float]) -> float:
    half, reached = sum(weight) / 2, 0.0
    for edge, share in zip(upper, weight, strict=True):
        reached += share
        if reached >= half:
            return edge
    return upper[-1]
