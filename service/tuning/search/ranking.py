"""Which trial is best for an objective."""

from service.tuning.search.problem import Problem
from service.tuning.search.trial import Trial

_CAPACITY_WEIGHT = 2 / 3
"""Balanced: capacity counts twice as much as speed, since the limits already hold."""
_EIGHT_BIT_CACHE_HANDICAP = 0.9
"""An 8-bit cache must gain this much: it may cost quality on very long contexts (guide 1)."""
_PIPELINE_HANDICAP = 0.9
_DATA_PARALLEL_HANDICAP = 0.85
"""What stages and data-parallel experts must gain over plain tensor ranks: few measurements
back their prediction."""
_CLOSE = 1.02
_MISS_STEP = 0.05
"""Misses that differ by less count as equal, so that noise picks no odd settings."""


def rank_key(problem: Problem, trial: Trial) -> tuple[float, ...]:
    """Return the sort key of a trial, best first when sorted ascending.

    Trials within every limit come before those that miss one; the former are in order of the
    objective, the latter of how little they miss. Fewer GPUs decide what is left.
    """
    if not trial.meets:
        return (
            1.0,
            float(round(-trial.margin / _MISS_STEP)),
            -merit(problem, trial),
            float(trial.gpus),
        )
    return (0.0, -merit(problem, trial), float(trial.gpus))


def ranked(problem: Problem, trials: list[Trial]) -> list[Trial]:
    """Return the trials, best first; equal ones in order of their layout."""
    return sorted(
        trials,
        key=lambda t: (rank_key(problem, t), t.sized.topology, t.sized.kv_cache_dtype or ""),
    )


def merit(problem: Problem, trial: Trial) -> float:
    """Return how good a trial is for the objective; higher is better."""
    return _objective(problem, trial) * _handicap(trial)


def why_not_chosen(problem: Problem, trial: Trial, pick: Trial) -> str:
    """Return why a trial that serves the objective better than the pick was not picked, or ""."""
    if not trial.meets or _objective(problem, trial) <= _objective(problem, pick) * _CLOSE:
        return ""
    topology, picked = trial.sized.topology, pick.sized.topology
    held_back = {
        "pipeline stages": topology.pipeline_parallel_size > 1 == picked.pipeline_parallel_size,
        "data-parallel ranks": topology.data_parallel_size > 1 == picked.data_parallel_size,
    }
    named = [name for name, applies in held_back.items() if applies]
    if named:
        return (
            f"not chosen because few measurements back predictions for {' and '.join(named)}, "
            "which must therefore gain more than this"
        )
    if trial.sized.kv_cache_dtype is not None and pick.sized.kv_cache_dtype is None:
        return "not chosen because an 8-bit cache may cost quality and must gain more than this"
    if trial.gpus > pick.gpus:
        return "not chosen because fewer GPUs carry the load"
    return ""


def throughput_tokens_per_s(trial: Trial) -> float:
    """Return the output tokens per second that count: at capacity, or of the closed loop."""
    factor = trial.capacity_factor
    return trial.output_tokens_per_s * (1.0 if factor is None else factor)


def speed_per_s(trial: Trial) -> float:
    """Return the reciprocal of the mean time of a whole answer."""
    return 1000 / max(trial.performance.e2el_ms.mean, 1e-6)


def _objective(problem: Problem, trial: Trial) -> float:
    match problem.objective:
        case "latency":
            return speed_per_s(trial)
        case "throughput":
            return throughput_tokens_per_s(trial)
        case "cost":
            return _economy(problem, trial)
        case "balanced":
            capacity = max(throughput_tokens_per_s(trial), 1e-9)
            return float(capacity**_CAPACITY_WEIGHT * speed_per_s(trial) ** (1 - _CAPACITY_WEIGHT))


def _economy(problem: Problem, trial: Trial) -> float:
    """Return what a GPU buys: with a stated load the fewest GPUs win, else tokens per GPU."""
    per_gpu = throughput_tokens_per_s(trial) / trial.gpus
    if not problem.filled.arrivals_given:
        return per_gpu
    return 1e6 / trial.gpus + per_gpu / (1 + per_gpu)


def _handicap(trial: Trial) -> float:
    topology = trial.sized.topology
    factor = 1.0 if trial.sized.kv_cache_dtype is None else _EIGHT_BIT_CACHE_HANDICAP
    if topology.pipeline_parallel_size > 1:
        factor *= _PIPELINE_HANDICAP
    return factor * _DATA_PARALLEL_HANDICAP if topology.data_parallel_size > 1 else factor
