"""Other points of the Pareto front, each with what it trades."""

import msgspec

from service.tuning.search.carried import with_carried_capacity
from service.tuning.search.finder import Found
from service.tuning.search.pareto import pareto_front
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import speed_per_s, throughput_tokens_per_s
from service.tuning.search.refining import confirm
from service.tuning.search.trial import Trial

_NOTEWORTHY = 1.05
"""An alternative must be better by this much in what it is named for."""
_MOST = 4
_PRECISION = "16-bit cache"
"""Shown even where it misses a limit: what precision costs is the question."""


class Alternate(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled point beside the pick."""

    label: str
    trial: Trial


def alternates(problem: Problem, found: Found, *, fewer: Trial | None) -> tuple[Alternate, ...]:
    """Return the best trial of each direction in which one beats the pick.

    Directions: speed of an answer, throughput, GPUs, and precision of the cache; simulated like
    the pick. `fewer` is the pick in fewer copies, when those carry the load.
    """
    pick, reference = found.pick, found.reference
    if pick is None or reference is None:
        return ()
    front = _front(found)
    named = {
        "lowest latency": max(front, key=speed_per_s, default=None),
        "highest throughput": max(front, key=throughput_tokens_per_s, default=None),
        "fewest GPUs": fewer or min(front, key=lambda t: t.gpus, default=None),
        _PRECISION: _without_fp8(pick, found),
    }
    chosen: list[Alternate] = []
    for label, trial in named.items():
        if trial is None or not _beats(label, trial, reference):
            continue
        simulated = _simulated(problem, trial)
        is_new = all(_differs(simulated, other.trial) for other in chosen)
        is_no_way_out = pick.meets and not simulated.meets and label != _PRECISION
        if is_new and not is_no_way_out and _beats(label, simulated, pick):
            chosen.append(Alternate(label=label, trial=simulated))
    return tuple(chosen[:_MOST])


def _front(found: Found) -> tuple[Trial, ...]:
    """Return the undominated trials in throughput, speed and GPUs; those within limits first."""
    good = [trial for trial in found.trials if trial.meets] or list(found.trials)
    return pareto_front(
        good,
        lambda trial: (throughput_tokens_per_s(trial), speed_per_s(trial), -float(trial.gpus)),
    )


def _without_fp8(pick: Trial, found: Found) -> Trial | None:
    if pick.sized.kv_cache_dtype is None:
        return None
    same = (
        trial
        for trial in found.trials
        if trial.sized.topology == pick.sized.topology and trial.sized.kv_cache_dtype is None
    )
    return next(same, None)


def _beats(label: str, trial: Trial, pick: Trial) -> bool:
    match label:
        case "lowest latency":
            return speed_per_s(trial) > speed_per_s(pick) * _NOTEWORTHY
        case "highest throughput":
            return throughput_tokens_per_s(trial) > throughput_tokens_per_s(pick) * _NOTEWORTHY
        case "fewest GPUs":
            return trial.gpus < pick.gpus
        case _:
            return _differs(trial, pick)


def _differs(one: Trial, other: Trial) -> bool:
    return (one.sized.config, one.copies) != (other.sized.config, other.copies)


def _simulated(problem: Problem, trial: Trial) -> Trial:
    """Return the trial simulated, with the capacity that the simulation confirms for it."""
    if trial.method == "simulation":
        return trial
    return with_carried_capacity(problem, confirm(problem, trial))
