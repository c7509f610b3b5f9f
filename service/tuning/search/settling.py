"""The load at which a machine is looked at, and the room that a pick leaves above it."""

import msgspec

from service.tuning.search.carried import carried_factor, with_carried_capacity
from service.tuning.search.problem import BEYOND_LIMITS, Problem, at_rate
from service.tuning.search.ranking import merit, ranked
from service.tuning.search.refining import (
    COST_HEADROOM,
    WORTH_A_CHANGE,
    assess,
    confirm,
    starves,
)
from service.tuning.search.trial import SLOWEST_FACTOR, Trial, try_out, with_capacity

_WORTH_SETTLING = 1.1
"""The load is looked at again when it is this far above the operating point."""
DOUBT = 1.5
"""How much more of its capacity by the closed form a rival may confirm than the first does."""
_IN_VAIN = 2
"""Copies that may bring no room before no more are tried: capacities are known to about a tenth."""
_TELLING = 0.5
"""Share of a capacity below which the closed form erred as it seldom does."""
_IDLE_SHARE = 0.1
_OPERATING_SHARE = 0.7
"""Of its capacity, where a machine is looked at when no load is stated."""


def settle_load(problem: Problem, trials: list[Trial]) -> tuple[Problem, list[Trial]]:
    """Return the problem at a load that suits the hardware, when the caller stated none.

    A preset's nominal rate says nothing about this machine: what it carries within the limits
    is looked for, and the figures are given at 70 % of that.
    """
    best = trials[0] if trials else None
    if problem.filled.arrivals_given or best is None or best.capacity_factor is None:
        return problem, trials
    if best.capacity_factor <= SLOWEST_FACTOR:
        settled = _nearly_idle(problem, best)
        return settled, ranked(settled, [assess(settled, trial.sized) for trial in trials])
    rate = (problem.demand.requests_per_s or 0.0) * best.capacity_factor * _OPERATING_SHARE
    settled = at_rate(problem, float(f"{rate:.2g}"))
    again = [assess(settled, trial.sized) for trial in trials]
    return settled, ranked(settled, again)


def _nearly_idle(problem: Problem, best: Trial) -> Problem:
    """Return the problem at a load whose requests hardly meet: limits are missed without any."""
    answered = with_capacity(problem, best, targets=()).capacity_factor or 1.0
    rate = (problem.demand.requests_per_s or 0.0) * answered * _IDLE_SHARE
    return at_rate(problem, float(f"{rate:.2g}"), share=BEYOND_LIMITS)


def settle_by_simulation(problem: Problem, finalists: list[Trial]) -> tuple[Problem, list[Trial]]:
    """Return the problem at a load that the simulation confirms, where none was stated."""
    offered = problem.demand.requests_per_s
    if not finalists or problem.filled.arrivals_given or offered is None:
        return problem, finalists
    best = finalists[0]
    if best.meets:
        share = with_carried_capacity(problem, best).capacity_factor
    else:
        shares = [carried_factor(problem, trial) for trial in finalists]
        share = max((one for one in shares if one is not None), default=None)
    if share is None:
        settled = _nearly_idle(problem, best)
        return settled, [
            confirm(settled, try_out(settled, f.sized, copies=f.copies)) for f in finalists
        ]
    if share * _OPERATING_SHARE >= 1 / _WORTH_SETTLING:
        return problem, finalists
    settled = at_rate(problem, float(f"{offered * share * _OPERATING_SHARE:.2g}"))
    again = [with_capacity(settled, try_out(settled, f.sized, copies=f.copies)) for f in finalists]
    return settled, ranked(settled, [confirm(settled, trial) for trial in again])


def by_confirmed_capacity(problem: Problem, finalists: list[Trial]) -> list[Trial]:
    """Return the finalists ranked by the capacity that the simulation confirms.

    The closed form knows no tails, and errs differently for each of them. One that could not win
    even if the closed form erred much less for it than for the first is not simulated further: it
    gets the share of its capacity that was confirmed for the first. Where hardly half of that was
    confirmed, it is something about the first one, and says nothing about the others.
    """
    if len([trial for trial in finalists if trial.meets]) <= 1:
        return finalists
    first = with_carried_capacity(problem, finalists[0])
    share = (first.capacity_factor or 1.0) / (finalists[0].capacity_factor or 1.0)
    confirmed = [first]
    for rival in finalists[1:]:
        possible = _with_share(rival, 1.0 if share < _TELLING else min(1.0, share * DOUBT))
        best = max(merit(problem, one) for one in confirmed)
        confirmed.append(
            with_carried_capacity(problem, rival)
            if merit(problem, possible) > best
            else _with_share(rival, share)
        )
    return ranked(problem, confirmed)


def _with_share(trial: Trial, share: float) -> Trial:
    """Return a trial with this share of its capacity, but no less than the load that it meets."""
    factor = trial.capacity_factor
    if factor is None or not trial.meets:
        return trial
    return msgspec.structs.replace(trial, capacity_factor=max(1.0, factor * share))


def in_enough_copies(problem: Problem, trial: Trial, simulated: Trial) -> Trial:
    """Return the simulated trial in the fewest copies that keep the limits, where more are needed.

    Copies are counted by the closed form, which knows no tails: where the simulation finds that
    too few of them share the load, more are tried, as far as the hardware holds them.
    """
    most = problem.most_copies(trial.sized.topology.gpus)
    if simulated.meets or not trial.meets or trial.copies >= most:
        return simulated
    best = _in_copies(problem, trial, most)
    if not best.meets:
        return ranked(problem, [simulated, best])[0]
    low, high = trial.copies, most
    while high - low > 1:
        copies = (low + high) // 2
        fewer = _in_copies(problem, trial, copies)
        low, high = (low, copies) if fewer.meets else (copies, high)
        best = fewer if fewer.meets else best
    return best


def _in_copies(problem: Problem, trial: Trial, copies: int) -> Trial:
    """Return the trial in another number of copies, simulated."""
    return confirm(problem, with_capacity(problem, try_out(problem, trial.sized, copies=copies)))


def with_headroom(problem: Problem, pick: Trial) -> Trial:
    """Return the pick with its simulated capacity, and copies added until it leaves head-room.

    Where a limit is tight for requests that meet no others, copies bring no room: none is added.
    """
    pick = last = with_carried_capacity(problem, pick)
    most = problem.most_copies(pick.sized.topology.gpus)
    in_vain = 0
    while _is_tight(problem, last) and last.copies < most and in_vain < _IN_VAIN:
        more = with_capacity(problem, try_out(problem, last.sized, copies=last.copies + 1))
        last = with_carried_capacity(problem, confirm(problem, more))
        if (last.capacity_factor or 0.0) > (pick.capacity_factor or 0.0):
            pick, in_vain = last, 0
        else:
            in_vain += 1
    return pick


def with_sound_budget(problem: Problem, pick: Trial, trials: tuple[Trial, ...]) -> Trial:
    """Return the pick with vLLM's own token budget, unless the simulation confirms the gain."""
    own = trials[0] if trials else None
    chosen = pick.sized.effective.max_num_batched_tokens
    if own is None or own.sized.kv_cache_dtype != pick.sized.kv_cache_dtype:
        return pick
    if own.sized.effective.max_num_batched_tokens == chosen or starves(problem, own):
        return pick
    rival = confirm(
        problem, with_capacity(problem, try_out(problem, own.sized, copies=pick.copies))
    )
    if not rival.meets or merit(problem, rival) * WORTH_A_CHANGE < merit(problem, pick):
        return pick
    return with_carried_capacity(problem, rival)


def _is_tight(problem: Problem, pick: Trial) -> bool:
    factor = pick.capacity_factor
    return factor is not None and factor * COST_HEADROOM[problem.posture] < 1
