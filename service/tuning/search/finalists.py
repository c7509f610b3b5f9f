"""Which layouts are simulated, and which of them are left."""

from itertools import islice

from service.tuning.search.carried import GENEROUS
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import merit, ranked, speed_per_s, throughput_tokens_per_s
from service.tuning.search.refining import confirm
from service.tuning.search.settling import DOUBT, in_enough_copies
from service.tuning.search.trial import SLOWEST_FACTOR, Trial

_SIMULATED = 2
_RESCUED = 2


def confirmed(problem: Problem, shortlist: list[Trial]) -> list[Trial]:
    """Return the first few simulated, best first; where none keeps the limits, the fastest too.

    The extremes in speed and throughput are among them: the closed form may be wrong about a
    close race. Left out are those that could not win even if it erred by half, and, where even
    the first is far from the load, all others. Where the first does not hold, those that rank
    before the best that does are looked at too.
    """
    if not shortlist:
        return []
    first = confirm(problem, shortlist[0])
    if all(_is_out_of_reach(one) for one in shortlist):
        return [first]
    first = in_enough_copies(problem, shortlist[0], first)
    chosen = _worth_simulating(shortlist)
    rivals = [one for one in chosen[1:] if not first.meets or _may_win(problem, one, first)]
    simulated = [in_enough_copies(problem, one, confirm(problem, one)) for one in rivals]
    finalists = ranked(problem, [first, *simulated])
    if finalists[0].meets:
        passed = [] if first.meets else _passed_over(problem, shortlist, chosen, finalists[0])
        return ranked(problem, [*finalists, *passed])
    rest = [one for one in shortlist if one not in chosen and not _is_out_of_reach(one)]
    fastest = sorted(rest, key=lambda one: one.performance.e2el_ms.mean)[:_RESCUED]
    return ranked(problem, [*finalists, *(confirm(problem, one) for one in fastest)])


def _may_win(problem: Problem, rival: Trial, first: Trial) -> bool:
    return rival.meets and merit(problem, rival) * DOUBT > merit(problem, first)


def _passed_over(
    problem: Problem, shortlist: list[Trial], chosen: list[Trial], best: Trial
) -> list[Trial]:
    """Return those simulated that rank before the best one that holds, to the first that does."""
    passed: list[Trial] = []
    for one in shortlist:
        if one in chosen or not one.meets or merit(problem, one) <= merit(problem, best):
            continue
        passed.append(in_enough_copies(problem, one, confirm(problem, one)))
        if passed[-1].meets:
            break
    return passed


def _is_out_of_reach(trial: Trial) -> bool:
    """Whether a layout carries so little that no error of the closed form makes up for it.

    Where it says that hardly any load keeps the limits, it is their latencies that decide: tails
    are a fixed multiple there, however idle the machine is.
    """
    factor = trial.capacity_factor
    if trial.meets or factor is None or factor * GENEROUS >= 1:
        return False
    return factor > SLOWEST_FACTOR or trial.margin <= 1 - GENEROUS


def _worth_simulating(shortlist: list[Trial]) -> list[Trial]:
    """Return the first few, the first of another layout, and the extremes within the limits.

    Extremes are the fastest and the most productive. A layout with another precision of the cache
    errs like the first one does, so that it is no second opinion.
    """
    chosen = shortlist[:_SIMULATED]
    other = (one for one in shortlist if one.sized.topology != shortlist[0].sized.topology)
    chosen += [one for one in islice(other, 1) if one not in chosen]
    good = [trial for trial in shortlist if trial.meets]
    for measure in (speed_per_s, throughput_tokens_per_s):
        extreme = max(good, key=measure, default=None)
        if extreme is not None and extreme not in chosen:
            chosen.append(extreme)
    return chosen
