"""How sure a measurement is: intervals of percentiles, means, rates and ratios."""

import math
from collections.abc import Sequence

import numpy as np

Z = 1.645
"""Normal quantile of a two-sided 90 % interval."""
_TAIL = 0.05
_T_95 = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t of a two-sided 95 % interval for 1 to 10 degrees of freedom."""
_T_LARGE = 2.0
Interval = tuple[float, float | None]


def requests_needed(percentiles: Sequence[float]) -> int:
    """Return how many requests bound the highest percentile (0 to 1) from above.

    With n requests the largest exceeds the percentile p unless all n lie below it, which has the
    probability p^n; 5 % of that is allowed.
    """
    return max((math.ceil(math.log(_TAIL) / math.log(p)) for p in percentiles), default=1)


def percentile_of(samples: Sequence[float], percentile: float) -> float:
    """Return a percentile (0 to 1) of the samples."""
    return float(np.quantile(np.asarray(samples, dtype=np.float64), percentile))


def percentile_interval(
    samples: Sequence[float], percentile: float, *, independent: int
) -> Interval:
    """Return the 90 % interval of a percentile (0 to 1), free of any assumed distribution.

    `independent` is the number of requests: the gaps within one request are not independent.
    """
    spread = Z * math.sqrt(percentile * (1 - percentile) / max(independent, 1))
    low, high = percentile - spread, percentile + spread
    values = np.asarray(samples, dtype=np.float64)
    above = None if high > 1 else float(np.quantile(values, high))
    return float(np.quantile(values, max(low, 0.0))), above


def mean_interval(samples: Sequence[float], *, independent: int) -> Interval:
    """Return the 90 % interval of a mean."""
    values = np.asarray(samples, dtype=np.float64)
    centre = float(values.mean())
    if independent < 2:  # noqa: PLR2004  # one value has no spread
        return 0.0, None
    half = Z * float(values.std()) / math.sqrt(independent)
    return max(centre - half, 0.0), centre + half


def rate_interval(count: int, seconds: float) -> Interval:
    """Return the 90 % interval of a rate from a count, with the noise of independent arrivals."""
    half = Z * math.sqrt(count)
    return max(count - half, 0.0) / seconds, (count + half) / seconds


def ratio_interval(new: Sequence[float], old: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the ratio of two means, from repeats of each.

    Welch's interval on logarithms; None when either side has fewer than two positive repeats.
    """
    if min(len(new), len(old)) < 2 or min(*new, *old) <= 0:  # noqa: PLR2004
        return None
    first, second = np.log(np.asarray(new)), np.log(np.asarray(old))
    parts = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
    error = math.sqrt(sum(parts))
    half = _student_t(_degrees_of_freedom(parts, (len(first), len(second)))) * error
    centre = float(first.mean() - second.mean())
    return math.exp(centre - half), math.exp(centre + half)


def _degrees_of_freedom(parts: Sequence[float], counts: tuple[int, int]) -> int:
    """Return Welch and Satterthwaite's figure, rounded down to be careful."""
    below = sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    if below == 0:
        return min(counts) - 1
    return max(1, int(sum(parts) ** 2 / below))


def _student_t(degrees: int) -> float:
    return _T_95[degrees - 1] if degrees <= len(_T_95) else max(_T_LARGE, _T_95[-1])
