"""Where the time per token reaches its limit: the concurrency to admit at most."""

from collections.abc import Sequence

import msgspec

from api_schemas.slo import LatencyTarget, Slo
from api_schemas.workload import ClosedLoop
from service.tuning.performance import load_shape, mean_load_keeps
from service.tuning.search.problem import Problem
from service.tuning.search.trial import Trial, prepared

_STEADY = frozenset({"tpot", "itl"})
"""Metrics that the number of running requests decides; a queue in front does not."""
_STEPS = 6
_BURST = 1.1
"""Head-room above the point where requests come in bursts: they should not queue for nothing."""


def operating_point(
    problem: Problem, trial: Trial, *, targets: Sequence[LatencyTarget] | None = None
) -> float | None:
    """Return the largest concurrency of one copy whose time per token stays in the limits.

    None without such limits, or when even the present cap keeps them. Found by halving the
    interval on closed loops with the closed form. `targets` replace the limits of the problem.
    """
    limits = steady_targets(problem.filled.slo) if targets is None else list(targets)
    cap = trial.sized.admission.value
    if not limits:
        return None
    prediction = prepared(problem, trial.sized)

    def holds(concurrency: int) -> bool:
        workload = msgspec.structs.replace(
            problem.filled.workload, arrivals=ClosedLoop(max_concurrency=concurrency)
        )
        load = load_shape(workload, replicas=prediction.replicas)
        return mean_load_keeps(prediction, load=load, targets=limits)

    if holds(cap):
        return None
    low, high = 1, cap
    for _ in range(_STEPS):
        middle = max(low + 1, round((low * high) ** 0.5))
        if middle >= high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low * _BURST if trial.is_open_loop else low


def steady_targets(slo: Slo) -> list[LatencyTarget]:
    """Return the limits that the number of running requests decides."""
    return [target for target in slo.targets if target.metric in _STEADY]
