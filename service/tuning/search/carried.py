"""How much of a load a configuration carries by simulation: the closed form knows no tails."""

import operator
from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

from api_schemas.slo import LatencyTarget, Slo
from service.tuning.limits_kept import limited_ms
from service.tuning.search.problem import Problem
from service.tuning.search.share import scaled, share_of
from service.tuning.search.trial import SLOWEST_FACTOR, Trial, predict, try_out, with_capacity
from service.tuning.simulation.bounds import LimitMissed

_SHARES = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.08, 0.04, 0.02)
"""Shares of the offered rate that are told apart, largest first."""


GENEROUS = 2.0
"""How far the closed form may be too low."""
_FIRST, _STEP = 0.95, 0.85
"""Of a guess at the capacity, where it is tried first, and how far it then steps down. Guesses are
1.0 of what the simulation carries in the middle, and 0.9 to 1.2 of it in eight of ten answers of
`benchmarks/speed.py`."""
_NO_TIME_MS = 1e-3


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
    start = min(1.0, GENEROUS * (trial.capacity_factor or 1.0))
    if trial.performance.saturated and problem.demand.requests_per_s:
        start = min(start, GENEROUS * trial.requests_per_s / problem.demand.requests_per_s)
    first = bisect_left(_SHARES, -(trial.capacity_factor or 1.0) / start, key=operator.neg)
    if trial.capacity_factor is not None and trial.capacity_factor <= SLOWEST_FACTOR:
        first = len(_SHARES) - 1  # not even a lonely request keeps the limits, by the closed form
    place = first_place(lambda place: carries(start * _SHARES[place]), first, places=len(_SHARES))
    return start * _SHARES[place] if place < len(_SHARES) else None


def first_place(carries: Callable[[int], bool], probe: int, *, places: int) -> int:
    """Return the first of `places` that carries, or `places`; from a guess in growing steps."""
    lost, held, step = -1, places, 1
    while held - lost > 1:
        probe = min(max(probe, lost + 1), held - 1)
        if carries(probe):
            held, probe = probe, probe - step
        else:
            lost, probe = probe, probe + step
        step *= 2
        if lost >= 0 and held < places:
            probe = (lost + held) // 2
    return held


def with_carried_capacity(problem: Problem, pick: Trial) -> Trial:
    """Return a pick that meets its limits with a capacity that the simulation confirms.

    Tried first is a little less than the closed form's figure, corrected for the tails that the
    simulation shows at the offered load; from there it steps down, ever faster, to that load.
    """
    closed = pick.capacity_factor
    if closed is None or not pick.meets or pick.is_confirmed:
        return pick
    carries = _Carries(problem, pick, problem.filled.slo)
    factor, step = max(1.0, _FIRST * _guessed_factor(problem, pick, closed=closed)), _STEP
    while factor > 1 and not carries(factor):
        factor, step = max(1.0, factor * step), step * _STEP
    return msgspec.structs.replace(pick, capacity_factor=factor, is_confirmed=True)


def _guessed_factor(problem: Problem, pick: Trial, *, closed: float) -> float:
    """Return the closed form's capacity under limits tightened by the tails that it misses."""
    targets = without_tails(problem, pick, problem.filled.slo.targets)
    if targets == problem.filled.slo.targets:
        return closed
    tightened = with_capacity(problem, pick, near=closed, targets=targets)
    return min(closed, tightened.capacity_factor or closed)


def without_tails(
    problem: Problem, simulated: Trial, targets: Sequence[LatencyTarget]
) -> list[LatencyTarget]:
    """Return the limits for the closed form: tightened by the tails that the simulation shows."""
    mean = try_out(problem, simulated.sized, copies=simulated.copies)
    return [
        msgspec.structs.replace(
            target, limit_ms=target.limit_ms * _share_without_tail(mean, simulated, target)
        )
        for target in targets
    ]


def _share_without_tail(mean: Trial, simulated: Trial, target: LatencyTarget) -> float:
    """Return the part of a simulated latency that the closed form knows of, at most 1."""
    known, whole = (limited_ms(trial.performance, target) for trial in (mean, simulated))
    return min(1.0, max(known, _NO_TIME_MS) / max(whole, _NO_TIME_MS))
