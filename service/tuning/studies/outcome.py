"""What trials add up to: which meet the targets, the best of them, the Pareto front."""

from collections.abc import Mapping, Sequence

from api_schemas.estimate import Performance
from api_schemas.slo import Slo
from api_schemas.study import Objective, StudyTrial
from api_schemas.validation import LoadPoint

_LATENCIES = ("ttft", "tpot", "itl", "e2el")
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_RATES = ("requests_per_s", "output_tokens_per_s")


def figures_of(source: LoadPoint | Performance) -> dict[str, float]:
    """Return latencies as `<metric>_ms_<statistic>`, rates, and preemptions where known."""
    found = {
        f"{metric}_ms_{name}": float(getattr(getattr(source, f"{metric}_ms"), name))
        for metric in _LATENCIES
        for name in _STATISTICS
    }
    found |= {name: float(getattr(source, name)) for name in _RATES}
    if source.preemptions_per_request is not None:
        found["preemptions_per_request"] = float(source.preemptions_per_request)
    return found


def violations_of(figures: Mapping[str, float], slo: Slo) -> dict[str, float]:
    """Return by limit how far the figures miss it, relative to it; nothing for those they keep."""
    missed: dict[str, float] = {}
    for target in slo.targets:
        name = target.percentile if target.percentile == "mean" else f"p{target.percentile}"
        key = f"{target.metric}_ms_{name}"
        if key in figures:
            missed[key] = figures[key] / target.limit_ms - 1.0
    floors = {
        "requests_per_s": slo.min_requests_per_s,
        "output_tokens_per_s": slo.min_output_tokens_per_s,
    }
    for key, floor in floors.items():
        if floor is not None and key in figures:
            missed[key] = 1.0 - figures[key] / floor
    limit = slo.max_preemptions_per_request
    if limit is not None and "preemptions_per_request" in figures:
        missed["preemptions_per_request"] = figures["preemptions_per_request"] - limit
    return {key: value for key, value in missed.items() if value > 0}


def values_of(figures: Mapping[str, float], objectives: Sequence[Objective]) -> list[float] | None:
    """Return the objectives' figures; None when one was not measured."""
    found = [figures.get(objective.metric) for objective in objectives]
    known = [value for value in found if value is not None]
    return known if len(known) == len(objectives) else None


def best_trial(trials: Sequence[StudyTrial], objectives: Sequence[Objective]) -> int | None:
    """Return the number of the best trial that meets the targets, by the first objective."""
    kept = [trial for trial in _complete(trials, objectives) if trial.meets]
    if not kept:
        return None
    first = objectives[0]
    return min(kept, key=lambda trial: (_costs(trial, [first])[0], trial.number)).number


def pareto_front(trials: Sequence[StudyTrial], objectives: Sequence[Objective]) -> list[int]:
    """Return the numbers of the trials that no other beats; those that meet the targets, if any."""
    complete = _complete(trials, objectives)
    kept = [trial for trial in complete if trial.meets] or complete
    costs = {trial.number: _costs(trial, objectives) for trial in kept}
    return [
        number
        for number, cost in costs.items()
        if not any(_beats(other, cost) for other in costs.values())
    ]


def _complete(trials: Sequence[StudyTrial], objectives: Sequence[Objective]) -> list[StudyTrial]:
    return [
        trial
        for trial in trials
        if trial.state == "complete" and values_of(trial.measured, objectives) is not None
    ]


def _costs(trial: StudyTrial, objectives: Sequence[Objective]) -> tuple[float, ...]:
    """Return the objectives so that smaller is better."""
    return tuple(
        trial.measured[objective.metric] * (1 if objective.direction == "minimize" else -1)
        for objective in objectives
    )


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    at_least = all(a <= b for a, b in zip(one, other, strict=True))
    return at_least and one != other
