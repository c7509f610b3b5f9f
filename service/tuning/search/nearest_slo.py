"""The nearest change that brings a load within its limits."""

import msgspec

from api_schemas.estimate import Performance
from api_schemas.hardware import Hardware
from api_schemas.recommendation import Binding, Nearest
from api_schemas.slo import LatencyTarget, Slo, TargetOutcome
from api_schemas.workload import ClosedLoop
from service.tuning.search.carried import carried_factor
from service.tuning.search.emission import emitted
from service.tuning.search.problem import Problem, whole
from service.tuning.search.trial import Trial, predict

_RELAXED = 1.1
"""A relaxed limit leaves a tenth above what is predicted."""
_ROOM = 1.5
"""Above what one request alone takes, so that a limit leaves room for others."""
_LIGHT = 0.1
"""Share of what one request at a time gives, where queues are short even for one slot."""
_WIDEST_NODE = 8
_GROWTH_HEADROOM = 0.8
"""Share of their capacity that added copies are counted at."""


def slo_binding(trial: Trial) -> Binding:
    """Return the limit that the best configuration misses most."""
    if trial.is_open_loop and trial.performance.saturated:
        return Binding(
            constraint="load",
            detail=(
                "Requests arrive faster than this hardware answers them, so the queue grows "
                "without end."
            ),
        )
    worst = min(trial.outcomes, key=lambda outcome: outcome.margin)
    return Binding(constraint=str(worst.target.get("metric", "slo")), detail=_missed(worst))


def _missed(outcome: TargetOutcome) -> str:
    target = outcome.target
    if outcome.predicted_ms is not None:
        percentile = str(target.get("percentile", ""))
        at = percentile if percentile == "mean" else f"p{percentile}"
        return (
            f"The {target['metric']} {at} is predicted at {outcome.predicted_ms:.4g} ms, but the "
            f"limit is {target['limit_ms']} ms."
        )
    return (
        f"{target.get('metric')} is predicted at {outcome.predicted:.4g}, but the limit is "
        f"{target.get('limit')}."
    )


def nearest_within_limits(problem: Problem, hardware: Hardware, trial: Trial) -> Nearest:
    """Return more GPUs where the load is too much, limits within reach, or both.

    Limits that even a lonely request breaks are relaxed first; whether the load then needs more
    copies is simulated with the relaxed ones.
    """
    if not trial.is_open_loop:
        return _at_this_load(problem, trial)
    factor = carried_factor(problem, trial)
    if factor is not None:
        return _for_load(problem, hardware, trial, factor, slo=None)
    alone = _alone(problem, trial)
    slo = _reachable_slo(problem.filled.slo, alone, room=_ROOM)
    if not problem.filled.arrivals_given:
        return _answer(problem, trial, slo=slo)
    factor = carried_factor(problem, trial, slo=slo)
    if factor is None:
        return _answer(problem, trial, slo=slo, load=_LIGHT * trial.copies * alone.requests_per_s)
    return _for_load(problem, hardware, trial, factor, slo=slo)


def _for_load(
    problem: Problem, hardware: Hardware, trial: Trial, factor: float, *, slo: Slo | None
) -> Nearest:
    """Return the GPUs that carry the load, when these carry `factor` of it."""
    if factor >= 1:
        return _answer(problem, trial, slo=slo or problem.filled.slo)
    more = _more_copies(problem, hardware, trial, factor)
    load = (problem.demand.requests_per_s or 0.0) * factor
    return _answer(problem, trial, slo=slo, hardware=more, load=load)


def _alone(problem: Problem, trial: Trial) -> Performance:
    """Return the prediction for one request at a time."""
    workload = msgspec.structs.replace(
        problem.filled.workload, arrivals=ClosedLoop(max_concurrency=1)
    )
    return predict(problem, trial.sized, workload, Slo(), method="simulation")[0]


def _at_this_load(problem: Problem, trial: Trial) -> Nearest:
    """Return limits just above what is predicted for a load that waits for answers."""
    slo = _reachable_slo(problem.filled.slo, trial.performance, room=_RELAXED)
    slo = msgspec.structs.replace(
        slo,
        min_requests_per_s=_at_most(slo.min_requests_per_s, trial.requests_per_s / _RELAXED),
        min_output_tokens_per_s=_at_most(
            slo.min_output_tokens_per_s, trial.output_tokens_per_s / _RELAXED
        ),
    )
    return _answer(problem, trial, slo=slo)


def _answer(
    problem: Problem,
    trial: Trial,
    *,
    slo: Slo | None,
    hardware: Hardware | None = None,
    load: float | None = None,
) -> Nearest:
    parts, details = [], []
    if hardware is not None:
        gpus = (hardware.gpus_per_node or 1) * hardware.nodes
        parts.append(f"{gpus} x {problem.node.gpu.name} instead of {problem.node.num_gpus}")
        details.append(f"The present GPUs carry about {load:.3g} requests/s within the limits.")
    changed = _changes(problem.filled.slo, slo) if slo is not None else []
    if changed:
        parts.append("relax " + ", ".join(changed))
        details.append("This hardware does not reach the stated limits; the relaxed ones it does.")
    if hardware is None and load is not None:
        parts.append(f"lower the load to about {load:.2g} requests/s")
    return Nearest(
        change=" and ".join(parts) or "lower the load",
        config=emitted(problem, trial.sized.config, trial.sized.effective),
        hardware=hardware,
        slo=slo,
        detail=" ".join(details),
    )


def _changes(old: Slo, new: Slo) -> list[str]:
    latencies = [
        f"{after.metric} {_at(after)} {after.limit_ms:g} ms instead of {before.limit_ms:g} ms"
        for before, after in zip(old.targets, new.targets, strict=True)
        if after != before
    ]
    floors = [
        f"{name} {getattr(new, name):.3g} instead of {getattr(old, name):.3g}"
        for name in ("min_requests_per_s", "min_output_tokens_per_s")
        if getattr(new, name) != getattr(old, name)
    ]
    return [*latencies, *floors]


def _at(target: LatencyTarget) -> str:
    return "mean" if target.percentile == "mean" else f"p{target.percentile}"


def _more_copies(problem: Problem, hardware: Hardware, trial: Trial, factor: float) -> Hardware:
    """Return the hardware with as many GPUs of the kind as the load needs."""
    copies = whole(trial.copies / factor / _GROWTH_HEADROOM)
    gpus = copies * trial.sized.topology.gpus
    per_node = max(problem.node.gpus_per_node, min(gpus, _WIDEST_NODE))
    return msgspec.structs.replace(hardware, gpus_per_node=per_node, nodes=whole(gpus / per_node))


def _reachable_slo(slo: Slo, performance: Performance, *, room: float) -> Slo:
    """Return the limits with each latency at least `room` times its prediction."""
    return msgspec.structs.replace(
        slo, targets=[_reachable(target, performance, room=room) for target in slo.targets]
    )


def _reachable(target: LatencyTarget, performance: Performance, *, room: float) -> LatencyTarget:
    predicted: float = getattr(getattr(performance, f"{target.metric}_ms"), _at(target))
    if predicted <= target.limit_ms:
        return target
    return msgspec.structs.replace(target, limit_ms=float(f"{predicted * room:.2g}"))


def _at_most(limit: float | None, reachable: float) -> float | None:
    return None if limit is None else min(limit, reachable)
