"""The search: size every legal layout, rank by the closed form, simulate the few best."""

import msgspec

from service.tuning.search.finalists import confirmed
from service.tuning.search.memo import Memo
from service.tuning.search.misfit import Misfit
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import ranked
from service.tuning.search.refining import (
    Refined,
    assess,
    confirm,
    fewer_copies,
    is_slow_by_cap,
    refine,
)
from service.tuning.search.settling import (
    by_confirmed_capacity,
    settle_by_simulation,
    settle_load,
    with_headroom,
    with_sound_budget,
)
from service.tuning.search.sizing import (
    FP8,
    Sized,
    content_without_load,
    size_topology,
    uses_fp8_kv,
)
from service.tuning.search.topology import Topology, legal_topologies
from service.tuning.search.trial import Trial

_REFINED = 3
_AMPLE = 2.0
"""A 16-bit cache that carries twice the stated load is left alone."""
_SPACES: Memo[tuple[tuple[Sized, ...], tuple[Misfit, ...]]] = Memo(most=1024)
"""Of all requests, like the layouts in them."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the search saw and what it picked."""

    problem: Problem
    """As it was solved: with a last resort in it where nothing else fits."""
    pick: Trial | None
    """Simulated; None when nothing fits."""
    trials: tuple[Trial, ...]
    """Every layout that fits, best first (closed form)."""
    finalists: tuple[Trial, ...]
    """Those that were simulated, best first."""
    misfits: tuple[Misfit, ...]
    token_trials: tuple[Trial, ...]
    """The picked layout with other token budgets (closed form)."""

    @property
    def reference(self) -> Trial | None:
        """The pick as it was compared with the others: by the closed form."""
        pick = self.pick
        if pick is None:
            return None
        same = (trial for trial in self.trials if _layout(trial) == _layout(pick))
        return next(same, pick)


def find_best(problem: Problem) -> Found:
    """Return the best configuration for the objective, and what it was compared with."""
    problem, trials, misfits = _explored(problem)
    refined = _refined(problem, trials)
    budgets = {_layout(one.best): one.token_trials for one in refined}
    rest = [trial for trial in trials if _layout(trial) not in budgets]
    shortlist = ranked(problem, [*(one.best for one in refined), *rest])
    finalists = confirmed(problem, shortlist)
    problem, finalists = settle_by_simulation(problem, finalists)
    finalists = by_confirmed_capacity(problem, finalists)
    pick = with_headroom(problem, finalists[0]) if finalists else None
    compared = budgets.get(_layout(pick), ()) if pick is not None else ()
    if pick is not None:
        pick = with_sound_budget(problem, pick, compared)
    return Found(
        problem=problem,
        pick=pick,
        trials=tuple(shortlist),
        finalists=tuple(finalists),
        misfits=tuple(misfits),
        token_trials=compared,
    )


def _refined(problem: Problem, trials: list[Trial]) -> list[Refined]:
    """Return the first few refined, and where it matters those that a lower cap may help.

    Layouts are ranked with the largest cap that their memory carries, which says little where it
    is the cap that breaks the limits: of all, or of one that would need the fewest GPUs. One that
    meets them with a lower cap does not say that it is the best of those.
    """
    refined = [_refined_one(problem, trial) for trial in trials[:_REFINED]]
    if problem.objective != "cost" and any(trial.meets for trial in trials[:_REFINED]):
        return refined
    helped = (trial for trial in trials[_REFINED:] if is_slow_by_cap(problem, trial))
    return [*refined, *(_refined_one(problem, trial) for trial in helped)]


def _refined_one(problem: Problem, trial: Trial) -> Refined:
    """Return the trial refined; its copies are counted again where only a lower cap let it meet."""
    refined = refine(problem, trial)
    if problem.objective != "cost" or trial.meets or not refined.best.meets:
        return refined
    fewer = fewer_copies(problem, refined.best)
    return refined if fewer is None else msgspec.structs.replace(refined, best=fewer)


def find_some(problem: Problem) -> Found:
    """Return the configuration that is best by the closed form, if the simulation agrees.

    For steps on the way to an answer: they ask whether limits can be kept, and a first
    configuration that keeps them says so. Where it does not, all the search is done.
    """
    if not problem.filled.arrivals_given or problem.objective == "cost":
        return find_best(problem)
    resolved, trials, misfits = _explored(problem)
    pick = confirm(resolved, refine(resolved, trials[0]).best) if trials else None
    if pick is None or not pick.meets:
        return find_best(problem)
    return Found(
        problem=resolved,
        pick=pick,
        trials=tuple(trials),
        finalists=(pick,),
        misfits=tuple(misfits),
        token_trials=(),
    )


def _explored(problem: Problem) -> tuple[Problem, list[Trial], list[Misfit]]:
    """Return the problem as it can be solved, every layout that fits, and those that do not."""
    sized, misfits = size_all(problem)
    for resort in last_resorts(problem):
        if sized:
            break
        sized, _ = size_all(resort)
        problem = resort if sized else problem
    problem, trials = settle_load(problem, ranked(problem, assess_all(problem, sized)))
    return problem, trials, misfits


def last_resorts(problem: Problem) -> tuple[Problem, ...]:
    """Return the problem with each harsh measure that the request allows, mildest first."""
    constraints, pin = problem.constraints, problem.pin
    measures: list[dict[str, object]] = []
    if constraints.allow_online_quantization and problem.spec.quantization is None:
        measures.append({"quantization": FP8})
    if constraints.allow_enforce_eager:
        measures.append({"enforce_eager": True})
    return tuple(
        msgspec.structs.replace(problem, base=msgspec.structs.replace(problem.base, **measure))
        for measure in measures
        if all(getattr(pin, name) is None for name in measure)
    )


def assess_all(problem: Problem, sized: list[Sized]) -> list[Trial]:
    """Return the trials of all layouts; an 8-bit cache only where 16 bit is not ample."""
    plain = {one.topology: assess(problem, one) for one in sized if one.kv_cache_dtype is None}
    small = [
        assess(problem, one)
        for one in sized
        if one.kv_cache_dtype is not None and not _is_ample(problem, plain.get(one.topology))
    ]
    return [*plain.values(), *small]


def _is_ample(problem: Problem, trial: Trial | None) -> bool:
    """Whether a stated load leaves a 16-bit cache so empty that 8 bit would buy nothing."""
    if trial is None or not trial.meets or not problem.filled.arrivals_given:
        return False
    if problem.objective == "throughput":
        return False
    if trial.capacity_factor is not None:
        return trial.capacity_factor >= _AMPLE
    return trial.performance.kv_cache_usage * _AMPLE <= 1


def size_all(problem: Problem) -> tuple[list[Sized], list[Misfit]]:
    """Return every legal layout that fits, and every one that does not with its reason."""
    sized, misfits = _SPACES.once(content_without_load(problem), lambda: _size_all(problem))
    return list(sized), list(misfits)


def _size_all(problem: Problem) -> tuple[tuple[Sized, ...], tuple[Misfit, ...]]:
    dtypes = (None, FP8) if uses_fp8_kv(problem) else (None,)
    sized: list[Sized] = []
    misfits: list[Misfit] = []
    for topology in topologies(problem):
        if _is_needless_pipeline(topology, sized):
            continue
        for dtype in dtypes:
            outcome = size_topology(problem, topology, kv_cache_dtype=dtype)
            if isinstance(outcome, Sized):
                sized.append(outcome)
            else:
                misfits.append(outcome)
    return tuple(sized), tuple(misfits)


def _is_needless_pipeline(topology: Topology, sized: list[Sized]) -> bool:
    """Whether fewer stages of the same width fit already: stages make a model fit, no more."""
    width, stages = topology.tensor_parallel_size, topology.pipeline_parallel_size
    return any(
        one.topology.tensor_parallel_size == width
        and one.topology.pipeline_parallel_size < stages
        and one.topology.data_parallel_size == topology.data_parallel_size
        for one in sized
    )


def topologies(problem: Problem) -> tuple[Topology, ...]:
    """Return the legal layouts of the problem."""
    return legal_topologies(
        problem.spec,
        problem.node,
        version=problem.version,
        constraints=problem.constraints,
        pin=problem.pin,
    )


def _layout(trial: Trial) -> tuple[Topology, str | None]:
    return trial.sized.topology, trial.sized.kv_cache_dtype
