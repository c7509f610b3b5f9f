"""The layouts that were compared, as points that a person can choose from."""

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Compared
from service.tuning.search.emission import emitted
from service.tuning.search.finder import Found
from service.tuning.search.pareto import pareto_front
from service.tuning.search.problem import Problem
from service.tuning.search.ranking import speed_per_s, throughput_tokens_per_s
from service.tuning.search.trial import Trial, try_out, with_capacity

_MOST = 24


def compared_layouts(problem: Problem, found: Found, *, config: EngineConfig) -> list[Compared]:
    """Return the layouts that fit, best first, on equal terms: all by the closed form.

    Args:
        problem: The problem as it was solved.
        found: What the search saw.
        config: The settings of the pick, whose token budget was refined after the comparison.
    """
    trials = [_in_picked_copies(problem, found, trial) for trial in found.trials[:_MOST]]
    within = [trial for trial in trials if trial.meets] or trials
    front = pareto_front(within, lambda t: (throughput_tokens_per_s(t), speed_per_s(t)))
    return [
        Compared(
            label=_label(trial),
            config=config
            if layout is found.reference
            else emitted(problem, trial.sized.config, trial.sized.effective),
            copies=trial.copies,
            gpus=trial.gpus,
            capacity_output_tokens_per_s=throughput_tokens_per_s(trial),
            answer_ms=trial.performance.e2el_ms.mean,
            meets_slo=trial.meets,
            on_front=any(trial is other for other in front),
            chosen=layout is found.reference,
        )
        for layout, trial in zip(found.trials, trials, strict=False)
    ]


def _in_picked_copies(problem: Problem, found: Found, trial: Trial) -> Trial:
    """Return a trial; the picked layout's by the closed form in the copies that were picked."""
    pick = found.pick
    if pick is None or trial is not found.reference or pick.copies == trial.copies:
        return trial
    return with_capacity(problem, try_out(problem, trial.sized, copies=pick.copies))


def _label(trial: Trial) -> str:
    cache = ", 8-bit cache" if trial.sized.kv_cache_dtype else ""
    return f"{trial.sized.topology.label} x {trial.copies}{cache}"
