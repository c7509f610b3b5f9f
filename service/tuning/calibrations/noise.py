"""How far a measured figure may lie from a right model of its configuration.

Standard deviations of the logarithm, near what is left of a fit to all loads of a configuration:
0.02 to 0.05 (TPOT), 0.10 to 0.17 (TTFT) and 0.06 to 0.11 (throughput) in loops, 0.09 to 0.21 and
0.08 to 0.14 in bursts, where the higher figures are those of loads that a fit has not seen. Of
neighbouring values those stand here that predict such loads best (`benchmarks/few_shot.py`).
"""

import numpy as np
from numpy.typing import NDArray

from service.tuning.calibrations.schedule import Figure
from service.tuning.simulation.traffic import Traffic

Floats = NDArray[np.float64]
_NOISE = {"tpot": 0.05, "ttft": 0.12, "output_tokens_per_s": 0.05}
_BURST_NOISE = {"tpot": 0.20, "ttft": 0.30, "output_tokens_per_s": 0.10}
"""Of requests that all come at once: in which order they get their turns decides what each of them
waits for, and hardly how long the whole takes."""


def noise_of(figures: tuple[Figure, ...], traffic: Traffic) -> Floats:
    """Return the noise of each figure of a load."""
    table = _BURST_NOISE if _is_burst(traffic) else _NOISE
    return np.array([table[figure.metric] for figure in figures])


def _is_burst(traffic: Traffic) -> bool:
    """Tell whether all requests are sent at once and none after them."""
    if len(traffic.prompts) <= 1 or traffic.arrivals.any():
        return False
    return traffic.concurrency == 0 or traffic.waves <= 1.0
