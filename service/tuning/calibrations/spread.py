"""Which loads to measure: the smallest, then those that differ most."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from service.tuning.calibrations.fit import MeasuredPoint
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]


def spread_points(points: Sequence[MeasuredPoint], number: int) -> list[int]:
    """Return the places of that many points: the smallest load first, then the farthest ones.

    Distance is in the logarithms of load, prompt and output length.
    """
    if not points:
        return []
    at = np.log([load_of(point.traffic) for point in points])
    chosen = [int(np.lexsort((at[:, 1], at[:, 0]))[0])]
    while len(chosen) < min(number, len(points)):
        apart = np.linalg.norm(at[:, None] - at[chosen][None], axis=2).min(axis=1)
        chosen.append(int(apart.argmax()))
    return chosen


def load_of(traffic: Traffic) -> tuple[float, float, float]:
    """Return load, mean prompt and mean output: requests in flight, or per second if open."""
    in_flight = traffic.concurrency or len(traffic.prompts)
    load = traffic.offered_requests_per_s or float(in_flight)
    return load, float(traffic.prompts.mean()), float(traffic.outputs.mean())
