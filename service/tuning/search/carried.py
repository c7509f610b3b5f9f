"""How much of a load a configuration carries by simulation: the closed form knows no tails."""

from bisect import bisect_left

import msgspec

from api_schemas.slo import Slo
from service.tuning.search.problem import Problem
from service.tuning.search.share import scaled, share_of
from service.tuning.search.trial import Trial, predict
from service.tuning.simulation.bounds import LimitMissed

_SHARES = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.08, 0.04, 0.02)
"""Shares of the offered rate that are told apart, largest first."""


_HALVINGS = 3
_GENEROUS = 2.0
"""How far the closed form may be too low."""


class _Carries:
    """Whether a multiple of the offered load keeps the limits by simulation.

    Only limits that hold for any load count: latencies and preemptions, no floors of throughput.
    """

    def __init__(self, problem: Problem, trial: Trial, limits: Slo) -> None:
        self._problem = problem
        self._sized = trial.sized
        self._share = share_of(problem.filled.workload, copies=trial.copies)
        self._limits = Slo(
            targets=limits.targets,
            max_preemptions_per_request=limits.max_preemptions_per_request,
        )

    def __call__(self, factor: float) -> bool:
        try:
            performance, outcomes = predict(
                self._problem,
                self._sized,
                scaled(self._share, factor),
                self._limits,
                method="simulation",
                stops_when_lost=True,
            )
        except LimitMissed:
            return False
        return not performance.saturated and all(outcome.margin >= 0 for outcome in outcomes)


def carried_factor(problem: Problem, trial: Trial, *, slo: Slo | None = None) -> float | None:
    """Return the largest share of the offered rate, out of ten, that keeps the limits.

    None when even a fiftieth breaks one. A load far beyond the closed form's capacity starts
    from there.
    """
    carries = _Carries(problem, trial, slo or problem.filled.slo)
    start = min(1.0, _GENEROUS * (trial.capacity_factor or 1.0))
    if trial.performance.saturated and problem.demand.requests_per_s:
        start = min(start, _GENEROUS * trial.requests_per_s / problem.demand.requests_per_s)
    place = bisect_left(_SHARES, 1, key=lambda share: int(carries(start * share)))
    return start * _SHARES[place] if place < len(_SHARES) else None


def with_carried_capacity(problem: Problem, pick: Trial) -> Trial:
    """Return a pick that meets its limits with the capacity that the simulation confirms.

    The closed form's figure is tried first; where tails break a limit there, the interval down
    to the offered load is halved three times.
    """
    factor = pick.capacity_factor
    if factor is None or not pick.meets:
        return pick
    low, high = 1.0, max(factor, 1.0)
    carries = _Carries(problem, pick, problem.filled.slo)
    if high > low and carries(high):
        low = high
    for _ in range(_HALVINGS if low < high else 0):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if carries(middle) else (low, middle)
    return msgspec.structs.replace(pick, capacity_factor=low)
