"""The search: size every legal layout, rank by the closed form, simulate the few best."""

import msgspec

from service.tuning.lengths import max_tokens
from service.tuning.search.admission_rule import AdmissionChoice, round_down
from service.tuning.search.carried import carried_factor, with_carried_capacity
from service.tuning.search.operating_point import operating_point
from service.tuning.search.problem import Problem, at_rate, whole
from service.tuning.search.ranking import merit, rank_key
from service.tuning.search.sizing import (
    FP8,
    Misfit,
    Sized,
    size_topology,
    uses_fp8_kv,
    with_admission,
    with_batched_tokens,
)
from service.tuning.search.topology import Topology, legal_topologies
from service.tuning.search.trial import SLOWEST_FACTOR, Trial, try_out, with_capacity

TOKEN_BUDGETS = (2048, 4096, 8192, 16_384)
"""Budgets that are compared beside vLLM's own one; the guides move between 2048 and 16384."""
_REFINED = 3
_AMPLE = 2.0
"""A 16-bit cache that carries twice the stated load is left alone."""
_SIMULATED = 3
_MOST_STEPS = 64
"""A prompt in more steps than this holds up those behind it (vLLM PR 10235)."""
_RESCUED = 2
_WORTH_SETTLING = 1.1
"""The load is looked at again when it is this far above the operating point."""
_WORTH_A_CHANGE = 1.02
"""A value other than vLLM's own must gain this much."""
_OPERATING_SHARE = 0.7
"""Of its capacity, where a machine is looked at when no load is stated."""
_BACK_OFF = 0.8
"""The guides step back to 0.8 of the cap where preemptions begin."""
_BACK_OFF_STEPS = 4
_COST_HEADROOM = {"production": 0.8, "aggressive": 0.95}
"""Share of its capacity that a copy is filled to when copies are counted."""


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
        key = (pick.sized.topology, pick.sized.kv_cache_dtype)
        same = (t for t in self.trials if (t.sized.topology, t.sized.kv_cache_dtype) == key)
        return next(same, pick)


def find_best(problem: Problem) -> Found:
    """Return the best configuration for the objective, and what it was compared with."""
    sized, misfits = size_all(problem)
    for resort in last_resorts(problem):
        if sized:
            break
        sized, _ = size_all(resort)
        problem = resort if sized else problem
    problem, trials = _settle_load(problem, _ranked(problem, assess_all(problem, sized)))
    refined = [refine(problem, trial) for trial in trials[:_REFINED]]
    token_trials = {one.best.sized.topology: one.token_trials for one in refined}
    shortlist = _ranked(problem, [*(one.best for one in refined), *trials[_REFINED:]])
    finalists = _confirmed(problem, shortlist)
    problem, finalists = _settle_by_simulation(problem, finalists)
    pick = _with_headroom(problem, finalists[0]) if finalists else None
    if pick is not None:
        pick = _with_sound_budget(problem, pick, token_trials.get(pick.sized.topology, ()))
    return Found(
        problem=problem,
        pick=pick,
        trials=tuple(shortlist),
        finalists=tuple(finalists),
        misfits=tuple(misfits),
        token_trials=token_trials.get(pick.sized.topology, ()) if pick else (),
    )


def _settle_load(problem: Problem, trials: list[Trial]) -> tuple[Problem, list[Trial]]:
    """Return the problem at a load that suits the hardware, when the caller stated none.

    A preset's nominal rate says nothing about this machine: what it carries within the limits
    is looked for, and the figures are given at 70 % of that.
    """
    best = trials[0] if trials else None
    if problem.filled.arrivals_given or best is None or best.capacity_factor is None:
        return problem, trials
    if best.capacity_factor <= SLOWEST_FACTOR:
        return problem, trials
    rate = (problem.demand.requests_per_s or 0.0) * best.capacity_factor * _OPERATING_SHARE
    settled = at_rate(problem, float(f"{rate:.2g}"))
    again = [assess(settled, trial.sized) for trial in trials]
    return settled, _ranked(settled, again)


def _confirmed(problem: Problem, shortlist: list[Trial]) -> list[Trial]:
    """Return the first few simulated, best first; where none keeps the limits, the fastest too."""
    finalists = _ranked(problem, [confirm(problem, one) for one in shortlist[:_SIMULATED]])
    rest = shortlist[_SIMULATED:]
    if not finalists or finalists[0].meets or not rest:
        return finalists
    fastest = sorted(rest, key=lambda one: one.performance.e2el_ms.mean)[:_RESCUED]
    return _ranked(problem, [*finalists, *(confirm(problem, one) for one in fastest)])


def _settle_by_simulation(problem: Problem, finalists: list[Trial]) -> tuple[Problem, list[Trial]]:
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
    if share is None or share * _OPERATING_SHARE >= 1 / _WORTH_SETTLING:
        return problem, finalists
    settled = at_rate(problem, float(f"{offered * share * _OPERATING_SHARE:.2g}"))
    again = [with_capacity(settled, try_out(settled, f.sized, copies=f.copies)) for f in finalists]
    return settled, _ranked(settled, [confirm(settled, trial) for trial in again])


def _with_headroom(problem: Problem, pick: Trial) -> Trial:
    """Return the pick with its simulated capacity, and copies added until it leaves head-room."""
    pick = with_carried_capacity(problem, pick)
    most = problem.most_copies(pick.sized.topology.gpus)
    while _is_tight(problem, pick) and pick.copies < most:
        more = with_capacity(problem, try_out(problem, pick.sized, copies=pick.copies + 1))
        pick = with_carried_capacity(problem, confirm(problem, more))
    return pick


def _with_sound_budget(problem: Problem, pick: Trial, trials: tuple[Trial, ...]) -> Trial:
    """Return the pick with vLLM's own token budget, unless the simulation confirms the gain."""
    own = trials[0] if trials else None
    chosen = pick.sized.effective.max_num_batched_tokens
    if own is None or own.sized.kv_cache_dtype != pick.sized.kv_cache_dtype:
        return pick
    if own.sized.effective.max_num_batched_tokens == chosen or _starves(problem, own):
        return pick
    rival = confirm(
        problem, with_capacity(problem, try_out(problem, own.sized, copies=pick.copies))
    )
    if not rival.meets or merit(problem, rival) * _WORTH_A_CHANGE < merit(problem, pick):
        return pick
    return with_carried_capacity(problem, rival)


def _is_tight(problem: Problem, pick: Trial) -> bool:
    factor = pick.capacity_factor
    return factor is not None and factor * _COST_HEADROOM[problem.posture] < 1


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
    return sized, misfits


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


def assess(problem: Problem, sized: Sized) -> Trial:
    """Return the trial in as many copies as the objective wants (closed form)."""
    copies = problem.most_copies(sized.topology.gpus)
    trial = with_capacity(problem, try_out(problem, sized, copies=copies))
    if problem.objective == "cost" and trial.meets:
        return fewer_copies(problem, trial) or trial
    return trial


def fewer_copies(problem: Problem, trial: Trial) -> Trial | None:
    """Return the trial in the fewest copies that carry a stated load with head-room, if fewer."""
    most = trial.copies
    if not problem.filled.arrivals_given:
        return None
    first = 1
    if trial.capacity_factor is not None:
        first = whole(most / trial.capacity_factor / _COST_HEADROOM[problem.posture])
    for copies in range(min(first, most), most):
        fewer = with_capacity(problem, try_out(problem, trial.sized, copies=copies))
        if fewer.meets:
            return fewer
    return None


class Refined(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with its cap and token budget settled."""

    best: Trial
    token_trials: tuple[Trial, ...]


def refine(problem: Problem, trial: Trial) -> Refined:
    """Return the trial with the admission cap of its operating point and the best token budget."""
    trial = _at_operating_point(problem, trial)
    if problem.pin.max_num_batched_tokens is not None:
        return Refined(best=trial, token_trials=(trial,))
    compared = [trial, *_other_budgets(problem, trial)]
    quick = [other for other in compared if not _starves(problem, other)]
    best = min(quick or compared, key=lambda other: _budget_key(problem, other, trial))
    return Refined(best=best, token_trials=tuple(compared))


def _starves(problem: Problem, trial: Trial) -> bool:
    """Whether long prompts take so many steps that the requests behind them starve."""
    budget = trial.sized.effective.max_num_batched_tokens or 1
    longest = min(
        max_tokens(problem.filled.workload.prompt_tokens or 1), trial.sized.plan.max_model_len
    )
    return longest > _MOST_STEPS * budget


def _budget_key(problem: Problem, other: Trial, own: Trial) -> tuple[float, ...]:
    """Return the rank of a budget; vLLM's own one gets the gain that a change must bring."""
    if not other.meets:
        return rank_key(problem, other)
    bonus = _WORTH_A_CHANGE if other is own else 1.0
    return (0.0, -merit(problem, other) * bonus, 0.0)


def _other_budgets(problem: Problem, trial: Trial) -> list[Trial]:
    own = trial.sized.effective.max_num_batched_tokens
    found = []
    for tokens in TOKEN_BUDGETS:
        sized = with_batched_tokens(problem, trial.sized, tokens) if tokens != own else None
        if sized is not None:
            found.append(with_capacity(problem, try_out(problem, sized, copies=trial.copies)))
    return found


def _at_operating_point(problem: Problem, trial: Trial) -> Trial:
    """Return the trial with a cap no larger than where the time per token reaches its limit."""
    if problem.pin.max_num_seqs is not None:
        return trial
    cap = operating_point(problem, trial)
    if cap is None or round_down(cap) >= trial.sized.admission.value:
        return trial
    lower = _lowered(problem, trial, cap=round_down(cap), limited_by_slo=True)
    return lower or trial


def confirm(problem: Problem, trial: Trial) -> Trial:
    """Return the trial simulated, its cap stepped back while preemptions are predicted."""
    limit = problem.filled.slo.max_preemptions_per_request or 0.0
    simulated = _simulate(problem, trial)
    for _ in range(_BACK_OFF_STEPS):
        if simulated.performance.preemptions_per_request <= limit:
            break
        cap = round_down(simulated.sized.admission.value * _BACK_OFF)
        lower = None
        if problem.pin.max_num_seqs is None and cap < simulated.sized.admission.value:
            lower = _lowered(problem, trial, cap=cap, limited_by_slo=False)
        if lower is None:
            break
        simulated = _simulate(problem, lower)
    return simulated


def _simulate(problem: Problem, trial: Trial) -> Trial:
    simulated = try_out(problem, trial.sized, copies=trial.copies, method="simulation")
    return msgspec.structs.replace(simulated, capacity_factor=trial.capacity_factor)


def _lowered(problem: Problem, trial: Trial, *, cap: int, limited_by_slo: bool) -> Trial | None:
    admission: AdmissionChoice = msgspec.structs.replace(
        trial.sized.admission,
        value=cap,
        limited_by="slo" if limited_by_slo else trial.sized.admission.limited_by,
    )
    sized = with_admission(problem, trial.sized, admission)
    if sized is None:
        return None
    return with_capacity(problem, try_out(problem, sized, copies=trial.copies))


def _ranked(problem: Problem, trials: list[Trial]) -> list[Trial]:
    return sorted(
        trials,
        key=lambda t: (rank_key(problem, t), t.sized.topology, t.sized.kv_cache_dtype or ""),
    )
