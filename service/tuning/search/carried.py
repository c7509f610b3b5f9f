"""How much of a load a configuration carries by simulation: the closed form knows no tails."""

import msgspec

from api_schemas.slo import Slo
from service.tuning.search.problem import Problem
from service.tuning.search.share import scaled, share_of
from service.tuning.search.trial import Trial, predict

_STEPS = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.08, 0.04, 0.02)
"""Shares of the starting point that are tried, largest first."""


def carried_factor(
    problem: Problem, trial: Trial, *, start: float = 1.0, slo: Slo | None = None
) -> float | None:
    """Return the largest tried multiple of the offered rate whose simulation keeps the limits.

    None when even a fiftieth of `start` breaks one. Only limits that hold for any load count:
    latencies and preemptions, not floors of throughput.
    """
    limits = slo or problem.filled.slo
    judged = Slo(
        targets=limits.targets, max_preemptions_per_request=limits.max_preemptions_per_request
    )
    share = share_of(problem.filled.workload, copies=trial.copies)
    for step in _STEPS:
        load = scaled(share, start * step)
        performance, outcomes = predict(problem, trial.sized, load, judged, method="simulation")
        if not performance.saturated and all(outcome.margin >= 0 for outcome in outcomes):
            return start * step
    return None


def with_carried_capacity(problem: Problem, pick: Trial) -> Trial:
    """Return a pick that meets its limits with the capacity that the simulation confirms."""
    factor = pick.capacity_factor
    if factor is None or not pick.meets:
        return pick
    if factor <= 1:
        return msgspec.structs.replace(pick, capacity_factor=1.0)
    carried = carried_factor(problem, pick, start=factor) or 1.0
    return msgspec.structs.replace(pick, capacity_factor=max(1.0, carried))
