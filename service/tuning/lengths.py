"""What a distribution of request lengths says: mean, quantiles, extremes, seeded samples."""

import math
from functools import lru_cache
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.workload import (
    FixedLength,
    HistogramLength,
    Lengths,
    LognormalLength,
    SampleLengths,
    UniformLength,
)

_Z99 = NormalDist().inv_cdf(0.99)
_TAIL_QUANTILE = 0.9999
"""Stands for the longest draw of a distribution without an upper end."""
_GRID = (np.arange(250) + 0.5) / 250
_KEPT = 256
_KEPT_QUANTILES = 16_384
_LARGEST_KEPT_BYTES = 1 << 15
"""What is remembered: figures of so many distributions, none described in more bytes."""


class LengthFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What the search asks of a distribution again and again."""

    mean_tokens: float
    max_tokens: int
    has_spread: bool


def length_figures(lengths: Lengths) -> LengthFigures:
    """Return mean, maximum and spread of the lengths, from memory where they were asked before."""
    if not isinstance(lengths, SampleLengths | HistogramLength):
        return _remembered_short(lengths)
    content = msgspec.msgpack.encode(lengths)
    if len(content) > _LARGEST_KEPT_BYTES:
        return _figures(lengths)
    return _remembered(content)


@lru_cache(maxsize=_KEPT)
def _remembered(content: bytes) -> LengthFigures:
    return _figures(msgspec.msgpack.decode(content, type=Lengths))


@lru_cache(maxsize=_KEPT)
def _remembered_short(
    lengths: int | FixedLength | UniformLength | LognormalLength,
) -> LengthFigures:
    return _figures(lengths)


def typical_tokens(lengths: Lengths) -> tuple[float, ...]:
    """Return 250 evenly spaced quantiles, which stand for a distribution once its tail is cut."""
    content = msgspec.msgpack.encode(lengths)
    if len(content) > _LARGEST_KEPT_BYTES:
        return _typical(lengths)
    return _remembered_typical(content)


@lru_cache(maxsize=_KEPT)
def _remembered_typical(content: bytes) -> tuple[float, ...]:
    return _typical(msgspec.msgpack.decode(content, type=Lengths))


def _typical(lengths: Lengths) -> tuple[float, ...]:
    return tuple(quantiles_tokens(lengths, _GRID).tolist())


def _figures(lengths: Lengths) -> LengthFigures:
    return LengthFigures(
        mean_tokens=mean_tokens(lengths),
        max_tokens=max_tokens(lengths),
        has_spread=has_spread(lengths),
    )


def mean_tokens(lengths: Lengths) -> float:
    """Return the mean length in tokens."""
    match lengths:
        case int():
            return float(lengths)
        case FixedLength():
            return float(lengths.tokens)
        case UniformLength():
            low, high = _ordered(lengths)
            return (low + high) / 2
        case LognormalLength():
            return float(lengths.mean)
        case HistogramLength():
            return _histogram_mean(lengths)
        case SampleLengths():
            return float(np.mean(lengths.tokens))


def quantile_tokens(lengths: Lengths, fraction: float) -> float:
    """Return the length that this fraction (0 to 1) of the requests does not exceed."""
    if isinstance(lengths, LognormalLength):
        return _lognormal_quantile(lengths.mean, lengths.p99, fraction)
    return float(quantiles_tokens(lengths, np.array([fraction]))[0])


@lru_cache(maxsize=_KEPT_QUANTILES)
def _lognormal_quantile(mean: float, p99: float, fraction: float) -> float:
    lengths = LognormalLength(mean=mean, p99=p99)
    return float(_lognormal_quantiles(lengths, np.array([fraction]))[0])


def max_tokens(lengths: Lengths) -> int:
    """Return the longest length; of a lognormal one its 99.99th percentile."""
    match lengths:
        case int():
            return lengths
        case FixedLength():
            return lengths.tokens
        case UniformLength():
            return _ordered(lengths)[1]
        case SampleLengths():
            return max(lengths.tokens)
        case HistogramLength():
            return max(
                (u for u, w in zip(lengths.upper, lengths.weight, strict=False) if w > 0),
                default=max(lengths.upper),
            )
        case LognormalLength():
            return math.ceil(quantile_tokens(lengths, _TAIL_QUANTILE))


def has_spread(lengths: Lengths) -> bool:
    """Return whether the middle half of the lengths differs by more than a few per cent.

    Requests of equal length travel through a closed loop as one cohort, others do not.
    """
    low, high = (quantile_tokens(lengths, q) for q in (0.25, 0.75))
    return high - low > max(2.0, 0.02 * high)


def sample_tokens(
    lengths: Lengths, count: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return `count` lengths of at least one token, drawn with the generator.

    The draws are stratified: one from each of `count` equal slices of the distribution, in
    random order. Their mean is nearly free of noise, so that two configurations are compared
    under the same load.
    """
    slices = (generator.permutation(count) + generator.random(count)) / count
    drawn = quantiles_tokens(lengths, slices)
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def quantiles_tokens(lengths: Lengths, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lengths at these fractions (0 to 1) of the distribution."""
    match lengths:
        case int():
            return np.full(len(fractions), float(lengths))
        case FixedLength():
            return np.full(len(fractions), float(lengths.tokens))
        case UniformLength():
            low, high = _ordered(lengths)
            return np.clip(low - 0.5 + fractions * (high - low + 1), low, high)
        case LognormalLength():
            return _lognormal_quantiles(lengths, fractions)
        case HistogramLength():
            edges, shares = _histogram_edges(lengths)
            return np.interp(fractions, shares, edges)
        case SampleLengths():
            ordered = np.sort(np.asarray(lengths.tokens, dtype=np.float64))
            positions = np.minimum((fractions * len(ordered)).astype(np.int64), len(ordered) - 1)
            return ordered[positions]


def lognormal_parameters(lengths: LognormalLength) -> tuple[float, float]:
    """Return mu and sigma of the natural logarithm.

    With m the mean and z the 99 % quantile of the normal distribution,
    ln(p99 / m) = z sigma - sigma^2 / 2; the smaller root is the plausible one, and a p99 too far
    out for any sigma gets the widest shape there is.
    """
    ratio = math.log(max(lengths.p99 / lengths.mean, 1.0))
    root = _Z99**2 - 2 * ratio
    sigma = _Z99 - math.sqrt(root) if root > 0 else _Z99
    return math.log(lengths.mean) - sigma**2 / 2, sigma


def _lognormal_quantiles(
    lengths: LognormalLength, fractions: NDArray[np.float64]
) -> NDArray[np.float64]:
    mu, sigma = lognormal_parameters(lengths)
    inside = np.clip(fractions, 1e-9, 1 - 1e-9)
    return np.exp(mu + sigma * _normal_quantiles(inside))


def _normal_quantiles(fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([_normal_quantile(fraction) for fraction in fractions.tolist()])


@lru_cache(maxsize=_KEPT_QUANTILES)
def _normal_quantile(fraction: float) -> float:
    """Return a quantile of the normal distribution; the same few are asked for all the time."""
    return NormalDist().inv_cdf(fraction)


def _histogram_edges(lengths: HistogramLength) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bin edges and cumulative shares; a bin reaches from the edge below it to its own."""
    order = np.argsort(np.asarray(lengths.upper))
    upper = np.asarray(lengths.upper, dtype=np.float64)[order]
    weight = np.resize(np.asarray(lengths.weight, dtype=np.float64), len(upper))[order]
    if weight.sum() <= 0:
        weight = np.ones_like(upper)
    shares = np.concatenate(([0.0], np.cumsum(weight) / weight.sum()))
    return np.concatenate(([1.0], upper)), shares


def _histogram_mean(lengths: HistogramLength) -> float:
    edges, shares = _histogram_edges(lengths)
    return float(np.sum(np.diff(shares) * (edges[:-1] + edges[1:]) / 2))


def _ordered(lengths: UniformLength) -> tuple[int, int]:
    return min(lengths.low, lengths.high), max(lengths.low, lengths.high)
