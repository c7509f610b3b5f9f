"""Limits that nobody stated give way where the hardware is too slow for them."""

from collections.abc import Callable

import msgspec

from service.tuning.search.finder import Found
from service.tuning.search.problem import Problem
from service.tuning.search.trial import Trial, try_out, with_capacity

_WIDER = 2.0
_ATTEMPTS = 2
_STARVED = 0.1
"""Limits that leave less than this share of the load carried without them are too tight."""


def find_within_usual_limits(problem: Problem, *, find: Callable[[Problem], Found]) -> Found:
    """Return what `find` finds; a preset's limits are doubled while they starve it.

    Only where the caller stated neither limits nor load: then the limits are usual values of
    the use case, made for faster hardware, and an answer within wider ones helps more than none.
    """
    found = find(problem)
    for _ in range(_ATTEMPTS):
        pick = found.pick
        if pick is None or not _may_widen(problem) or not _is_starved(found.problem, pick):
            return found
        problem = _widened(problem)
        found = find(problem)
    return found


def _may_widen(problem: Problem) -> bool:
    filled = problem.filled
    is_free = not filled.limits_given and not filled.arrivals_given
    return is_free and bool(filled.slo.targets) and problem.demand.requests_per_s is not None


def _is_starved(problem: Problem, pick: Trial) -> bool:
    """Whether the limits cost nearly all of what the pick could serve."""
    if not pick.meets:
        return True
    slo = msgspec.structs.replace(problem.filled.slo, targets=[])
    free = msgspec.structs.replace(problem, filled=msgspec.structs.replace(problem.filled, slo=slo))
    unbound = with_capacity(free, try_out(free, pick.sized, copies=pick.copies))
    return (pick.capacity_factor or 0.0) < _STARVED * (unbound.capacity_factor or 0.0)


def _widened(problem: Problem) -> Problem:
    """Return the problem with each latency limit doubled, and say so."""
    slo = problem.filled.slo
    targets = [
        msgspec.structs.replace(target, limit_ms=target.limit_ms * _WIDER) for target in slo.targets
    ]
    spoken = ", ".join(f"{t.metric} p{t.percentile} below {t.limit_ms:g} ms" for t in targets)
    sentence = (
        "The usual limits of this use case leave hardly any load on this hardware, so wider ones "
        f"apply ({spoken}). State limits to have them kept."
    )
    kept = [
        said
        for said in problem.filled.assumptions
        if not said.startswith(("No targets", "The usual limits"))
    ]
    filled = msgspec.structs.replace(
        problem.filled,
        slo=msgspec.structs.replace(slo, targets=targets),
        assumptions=(*kept, sentence),
    )
    return msgspec.structs.replace(problem, filled=filled)
