"""When a run has lost: so many requests came late that a latency limit cannot hold any more."""

import math

import numpy as np
from numpy.typing import NDArray

from api_schemas.slo import Slo
from service.tuning.errors import TuningError

Floats = NDArray[np.float64]
_METRICS = ("ttft", "tpot", "e2el")
_ROUNDED = 1e-4
"""Margins are rounded to four digits: a limit missed by less still counts as kept."""


class LimitMissed(TuningError):
    """A run was stopped because it can keep its limits no more; never shown to a caller."""


def latency_bounds(slo: Slo | None, *, number: int, growth: float) -> Floats:
    """Return per metric (TTFT, TPOT, E2EL) the seconds allowed and how many requests may be late.

    Without limits none is ever late. Where steps sample several tokens, TPOT is left out: the
    scheduler counts steps. Of several limits of one metric the last one is looked at.
    """
    bounds = np.full((len(_METRICS), 2), np.inf)
    for target in slo.targets if slo else ():
        if target.percentile == "mean" or target.metric not in _METRICS:
            continue
        if target.metric == "tpot" and growth > 1.0:
            continue
        late = math.ceil(number * (1 - float(target.percentile) / 100)) + 1
        seconds = target.limit_ms / 1e3 * (1 + _ROUNDED)
        bounds[_METRICS.index(target.metric)] = seconds, late
    return bounds
