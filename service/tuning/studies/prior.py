"""What the analytic model says before a trial: where to begin, and what needs no try."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.slo import Slo
from api_schemas.study import Objective, StudyTrial
from service.tuning.studies.outcome import figures_of, values_of, violations_of
from service.tuning.studies.space import Parameters, configuration

_SMALLER_IS_BETTER = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "preemptions")


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of a configuration."""

    fits: bool
    reason: str | None
    """Why vLLM would not start."""
    figures: dict[str, float]
    at_best: dict[str, float]
    """The figures at the good end of their 80 % bands."""


Predict = Callable[[EngineConfig], Prior | None]
"""None where nothing can be said."""


def prior_of(estimate: Estimate) -> Prior:
    """Return what an estimate expects."""
    errors = [finding for finding in estimate.findings if finding.severity == "error"]
    reason = None if estimate.fits else (errors[0].message if errors else "it does not fit")
    performance = estimate.performance
    if performance is None:
        return Prior(fits=estimate.fits, reason=reason, figures={}, at_best={})
    figures = figures_of(performance)
    at_best = dict(figures)
    for name, (low, high) in performance.band.items():
        if name in figures:
            at_best[name] = low if name.startswith(_SMALLER_IS_BETTER) else high
    return Prior(fits=estimate.fits, reason=reason, figures=figures, at_best=at_best)


def promising(
    points: Sequence[Parameters],
    *,
    base: EngineConfig,
    predict: Predict,
    objectives: Sequence[Objective],
    slo: Slo,
    number: int,
) -> list[Parameters]:
    """Return the points that the model expects most of, the best first."""
    ranked = []
    for index, parameters in enumerate(points):
        prior = predict(configuration(base, parameters))
        if prior is None or not prior.fits:
            continue
        values = values_of(prior.figures, objectives)
        if values is None:
            continue
        missed = sum(violations_of(prior.figures, slo).values())
        ranked.append((missed, _cost(prior.figures, objectives[0]), index))
    return [points[index] for _, _, index in sorted(ranked)[:number]]


def hopeless(
    prior: Prior | None, *, trials: Sequence[StudyTrial], objectives: Sequence[Objective], slo: Slo
) -> str | None:
    """Return why a configuration needs no try; None when it may be worth one.

    Only what would not start, or what even at the good end of its band is worse than a trial that
    was measured and meets the targets. Where that trial did better than expected, others may too.
    """
    if prior is None:
        return None
    if not prior.fits:
        return f"It is not expected to start: {prior.reason}"
    good = [trial for trial in trials if trial.state == "complete" and trial.meets]
    if not good or not prior.at_best:
        return None
    missed = violations_of(prior.at_best, slo)
    if missed:
        worst = max(missed, key=lambda name: missed[name])
        return f"Even at the good end of its band it misses {worst} by {missed[worst]:.0%}."
    if len(objectives) == 1:
        return _beaten(prior.at_best, good, objectives[0])
    return None


def _beaten(
    at_best: Mapping[str, float], good: Sequence[StudyTrial], objective: Objective
) -> str | None:
    best = min(good, key=lambda trial: _cost(trial.measured, objective))
    if objective.metric not in at_best or objective.metric not in best.measured:
        return None
    hoped = at_best[objective.metric] * _surprise(best, objective)
    if _cost({objective.metric: hoped}, objective) <= _cost(best.measured, objective):
        return None
    return (
        f"Even at the good end of its band {objective.metric} is {hoped:.4g}; "
        f"trial {best.number} measured {best.measured[objective.metric]:.4g}."
    )


def _surprise(trial: StudyTrial, objective: Objective) -> float:
    """Return how many times its prediction a trial measured, where that was better; else 1."""
    predicted = trial.predicted.get(objective.metric)
    if not predicted or _cost(trial.measured, objective) >= _cost(trial.predicted, objective):
        return 1.0
    return trial.measured[objective.metric] / predicted


def _cost(figures: Mapping[str, float], objective: Objective) -> float:
    """Return the objective so that smaller is better."""
    value = figures.get(objective.metric, float("inf"))
    return value if objective.direction == "minimize" else -value
