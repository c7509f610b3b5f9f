"""One layout brought to its best: copies, admission cap, token budget, simulation."""

import msgspec

from service.tuning.lengths import max_tokens
from service.tuning.limits_kept import keeps_latencies
from service.tuning.search.admission_rule import (
    LARGEST,
    SHARE,
    AdmissionChoice,
    least_for_load,
    round_down,
)
from service.tuning.search.carried import without_tails
from service.tuning.search.operating_point import operating_point, steady_targets
from service.tuning.search.problem import Problem, whole
from service.tuning.search.ranking import merit, rank_key
from service.tuning.search.sizing import Sized, with_admission, with_batched_tokens
from service.tuning.search.trial import Trial, try_out, with_capacity

TOKEN_BUDGETS = (2048, 4096, 8192, 16_384)
"""Budgets that are compared beside vLLM's own one; the guides move between 2048 and 16384."""
COST_HEADROOM = {"production": 0.8, "aggressive": 0.95}
"""Share of its capacity that a copy is filled to when copies are counted."""
WORTH_A_CHANGE = 1.02
"""A value other than vLLM's own must gain this much."""
_MOST_STEPS = 64
"""A prompt in more steps than this holds up those behind it (vLLM PR 10235)."""
_BACK_OFF = 0.8
"""The guides step back to 0.8 of the cap where preemptions begin."""
_BACK_OFF_STEPS = 4
_RETREATS = 6
"""Caps that are simulated below one whose tokens come too slowly."""
_NO_QUEUE = 0.01
"""Waiting over running requests up to which nobody notices a queue."""


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
        first = whole(most / trial.capacity_factor / COST_HEADROOM[problem.posture])
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
    quick = [other for other in compared if not starves(problem, other)]
    best = min(quick or compared, key=lambda other: _budget_key(problem, other, trial))
    return Refined(best=best, token_trials=tuple(compared))


def is_slow_by_cap(problem: Problem, trial: Trial) -> bool:
    """Whether tokens come too slowly, which a lower cap mends, and nothing else is missed."""
    steady = steady_targets(problem.filled.slo)
    others = [target for target in problem.filled.slo.targets if target not in steady]
    performance = trial.performance
    return keeps_latencies(performance, others) and not keeps_latencies(performance, steady)


def starves(problem: Problem, trial: Trial) -> bool:
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
    bonus = WORTH_A_CHANGE if other is own else 1.0
    return (0.0, -merit(problem, other) * bonus, 0.0)


def _other_budgets(problem: Problem, trial: Trial) -> list[Trial]:
    own = trial.sized.effective.max_num_batched_tokens
    found = []
    for tokens in TOKEN_BUDGETS:
        sized = with_batched_tokens(problem, trial.sized, tokens) if tokens != own else None
        if sized is not None:
            other = try_out(problem, sized, copies=trial.copies)
            found.append(with_capacity(problem, other, near=trial.capacity_factor))
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
    """Return the trial simulated, its cap stepped back from preemptions and slow tokens."""
    simulated = _without_preemptions(problem, trial)
    simulated = _within_token_limits(problem, simulated)
    return _with_room_for_load(problem, trial, simulated)


def _without_preemptions(problem: Problem, trial: Trial) -> Trial:
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


def _within_token_limits(problem: Problem, simulated: Trial) -> Trial:
    """Return the trial with a cap whose time per token the simulation finds within the limits.

    The operating point comes from the closed form, which knows no tails. Where the simulation
    refuses it, a lower cap is looked for; the trial stays as it is where none keeps the limits.
    """
    refused, kept = simulated, None
    for _ in range(_RETREATS):
        lower = _retreated(problem, refused, kept)
        if lower is None:
            break
        again = _simulate(problem, lower)
        refused, kept = (refused, again) if again.meets else (again, kept)
    return kept or simulated


def _retreated(problem: Problem, refused: Trial, kept: Trial | None) -> Trial | None:
    """Return the trial with the next cap to try below a refused one; None when there is none."""
    cap = _cap_without_tails(problem, refused) if kept is None else _cap_between(kept, refused)
    if cap is None:
        return None
    lower = _lowered(problem, refused, cap=cap, limited_by_slo=True)
    return lower if lower is not None and lower.meets else None


def _cap_without_tails(problem: Problem, refused: Trial) -> int | None:
    """Return the operating point under limits tightened by the tails of the simulation."""
    targets = steady_targets(problem.filled.slo)
    if problem.pin.max_num_seqs is not None or keeps_latencies(refused.performance, targets):
        return None
    point = operating_point(problem, refused, targets=without_tails(problem, refused, targets))
    highest = round_down(refused.sized.admission.value - 1)
    return None if point is None or highest < 1 else min(round_down(point), highest)


def _cap_between(kept: Trial, refused: Trial) -> int | None:
    low, high = kept.sized.admission.value, refused.sized.admission.value
    middle = round_down((low * high) ** 0.5)
    return middle if low < middle < high else None


def _with_room_for_load(problem: Problem, trial: Trial, simulated: Trial) -> Trial:
    """Return the trial with the cap that a load inside the pool needs to run without a queue.

    Taken only where the simulation shows that every limit still holds, that no more requests are
    preempted than allowed, and that the first token comes sooner.
    """
    need = _needed_cap(problem, simulated)
    if need is None:
        return simulated
    sized = with_admission(
        problem,
        simulated.sized,
        msgspec.structs.replace(simulated.sized.admission, value=need, limited_by="load"),
    )
    if sized is None:
        return simulated
    raised = with_capacity(problem, try_out(problem, sized, copies=trial.copies))
    roomy = _simulate(problem, raised)
    limit = problem.filled.slo.max_preemptions_per_request or 0.0
    is_sound = roomy.performance.preemptions_per_request <= limit
    is_sooner = roomy.performance.ttft_ms.p95 < simulated.performance.ttft_ms.p95
    keeps = roomy.margin >= min(0.0, simulated.margin)
    return roomy if is_sound and is_sooner and keeps else simulated


def _needed_cap(problem: Problem, trial: Trial) -> int | None:
    """Return a higher cap that the load needs and the pool holds; None when there is none."""
    performance, admission = trial.performance, trial.sized.admission
    queue = performance.waiting_requests
    if problem.pin.max_num_seqs is not None or performance.saturated:
        return None
    if queue <= _NO_QUEUE * performance.running_requests:
        return None
    ranks = trial.sized.topology.data_parallel_size
    at_once = (performance.running_requests + queue) / ranks
    need = least_for_load(at_once, is_open_loop=trial.is_open_loop)
    most = min(SHARE["aggressive"] * admission.theoretical, LARGEST)
    return need if admission.value < need <= most else None


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
    lowered = try_out(problem, sized, copies=trial.copies)
    return with_capacity(problem, lowered, near=trial.capacity_factor)
