"""The nearest change that brings a load within its limits."""

import msgspec

from api_schemas.hardware import Hardware
from api_schemas.recommendation import Binding, Nearest
from api_schemas.slo import LatencyTarget, Slo
from service.tuning.search.emission import emitted
from service.tuning.search.problem import Problem, whole
from service.tuning.search.trial import Trial

_RELAXED = 1.1
"""A relaxed limit leaves a tenth above what is predicted."""
_WIDEST_NODE = 8
_LEAST_FACTOR = 1 / 64
"""Below this share of the load the limit is out of reach rather than the load too large."""


def slo_binding(trial: Trial) -> Binding:
    """Return the limit that the best configuration misses most."""
    if not trial.outcomes or (trial.performance.saturated and trial.margin == -1.0):
        return Binding(
            constraint="load",
            detail=(
                "Requests arrive faster than this hardware answers them: the queue grows without "
                "end."
            ),
        )
    worst = min(trial.outcomes, key=lambda outcome: outcome.margin)
    name = " ".join(str(worst.target[key]) for key in sorted(worst.target) if key != "limit_ms")
    predicted = worst.predicted_ms if worst.predicted_ms is not None else worst.predicted
    return Binding(
        constraint=str(worst.target.get("metric", "slo")),
        detail=f"{name}: predicted {predicted:.4g}, {-worst.margin:.0%} beyond the limit.",
    )


def nearest_within_limits(problem: Problem, hardware: Hardware, trial: Trial) -> Nearest:
    """Return more GPUs where the load is too much for these, else limits that can be held."""
    factor = trial.capacity_factor
    if factor is not None and _LEAST_FACTOR < factor < 1:
        return _more_copies(problem, hardware, trial, factor)
    return _relaxed(problem, trial)


def _more_copies(problem: Problem, hardware: Hardware, trial: Trial, factor: float) -> Nearest:
    gpus = whole(trial.gpus / factor)
    per_node = problem.node.gpus_per_node
    if gpus > per_node:
        per_node = min(_WIDEST_NODE, max(per_node, trial.sized.topology.gpus))
    nodes = whole(gpus / per_node)
    per_node = min(per_node, gpus)
    carried = trial.capacity_requests_per_s or 0.0
    return Nearest(
        change=f"{per_node * nodes} x {problem.node.gpu.name} instead of {problem.node.num_gpus}",
        config=emitted(problem, trial.sized.config, trial.sized.effective),
        hardware=msgspec.structs.replace(hardware, gpus_per_node=per_node, nodes=nodes),
        slo=None,
        detail=(
            f"These GPUs carry about {carried:.3g} requests/s within the limits, which is "
            f"{factor:.0%} of the load; the rest needs more copies."
        ),
    )


def _relaxed(problem: Problem, trial: Trial) -> Nearest:
    slo = problem.filled.slo
    targets = [_reachable(target, trial) for target in slo.targets]
    changed = [
        f"{new.metric} p{new.percentile} {new.limit_ms:g} ms instead of {old.limit_ms:g} ms"
        for old, new in zip(slo.targets, targets, strict=True)
        if new != old
    ]
    return Nearest(
        change="relax " + ", ".join(changed) if changed else "lower the load",
        config=emitted(problem, trial.sized.config, trial.sized.effective),
        hardware=None,
        slo=_reachable_slo(slo, targets, trial),
        detail=(
            "Even with little load this hardware does not reach the limit; these limits are "
            "within what is predicted."
            if changed
            else "The limits other than latency are out of reach for this hardware."
        ),
    )


def _reachable(target: LatencyTarget, trial: Trial) -> LatencyTarget:
    metric = getattr(trial.performance, f"{target.metric}_ms")
    name = target.percentile if isinstance(target.percentile, str) else f"p{target.percentile}"
    predicted: float = getattr(metric, name)
    if predicted <= target.limit_ms:
        return target
    return msgspec.structs.replace(target, limit_ms=float(f"{predicted * _RELAXED:.2g}"))


def _reachable_slo(slo: Slo, targets: list[LatencyTarget], trial: Trial) -> Slo:
    rate, tokens = trial.requests_per_s, trial.output_tokens_per_s
    return msgspec.structs.replace(
        slo,
        targets=targets,
        min_requests_per_s=_at_most(slo.min_requests_per_s, rate / _RELAXED),
        min_output_tokens_per_s=_at_most(slo.min_output_tokens_per_s, tokens / _RELAXED),
    )


def _at_most(limit: float | None, reachable: float) -> float | None:
    return None if limit is None else min(limit, reachable)
