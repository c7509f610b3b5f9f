"""The nearest change that brings a load within its limits."""

import msgspec

from api_schemas.estimate import Performance
from api_schemas.hardware import Hardware
from api_schemas.recommendation import Binding, Nearest
from api_schemas.slo import LatencyTarget, Slo, TargetOutcome
from api_schemas.workload import ClosedLoop
from service.tuning.search.carried import carried_factor
from service.tuning.search.emission import emitted
from service.tuning.search.figures import figure
from service.tuning.search.problem import Problem, whole
from service.tuning.search.trial import Trial, predict, try_out

_RELAXED = 1.1
"""A relaxed limit leaves a tenth above what is predicted."""
_ROOM = 1.5
"""Above what one request alone takes, so that a limit leaves room for others."""
_LIGHT = 0.1
"""Share of what one request at a time gives, where queues are short even for one slot."""
_WIDEST_NODE = 8
_MULTIPLES = (2, 4, 8, 16, 32, 64)
_FLOORS = frozenset({"requests_per_s", "output_tokens_per_s"})
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
            f"The {target['metric']} {at} is predicted at {figure(outcome.predicted_ms)} ms, but "
            f"the limit is {figure(float(target['limit_ms']))} ms."
        )
    return (
        f"{target.get('metric')} is predicted at {figure(outcome.predicted or 0.0)}, but the limit "
        f"is {figure(float(target.get('limit', 0.0)))}."
    )


def nearest_within_limits(problem: Problem, hardware: Hardware, trial: Trial) -> Nearest:
    """Return more GPUs where the load is too much, limits within reach, or both.

    Limits that even a lonely request breaks are relaxed first; whether the load then needs more
    copies is simulated with the relaxed ones.
    """
    if _misses_only_floors(trial):
        return _at_this_load(problem, trial)
    if not trial.is_open_loop:
        return _spread_clients(problem, hardware, trial) or _at_this_load(problem, trial)
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


def _misses_only_floors(trial: Trial) -> bool:
    """Whether latency holds and only a wanted throughput is out of reach."""
    if trial.is_open_loop and trial.performance.saturated:
        return False
    missed = [outcome for outcome in trial.outcomes if outcome.margin < 0]
    return all(outcome.target.get("metric") in _FLOORS for outcome in missed)


def _spread_clients(problem: Problem, hardware: Hardware, trial: Trial) -> Nearest | None:
    """Return how many more GPUs the clients of a closed loop need, if any number helps."""
    clients = problem.demand.max_concurrency or 1
    for times in _MULTIPLES:
        copies = trial.copies * times
        if copies > clients:
            return None
        more = try_out(problem, trial.sized, copies=copies, method="simulation")
        if more.meets:
            wider = _hardware_of(problem, hardware, trial, copies)
            return _answer(problem, trial, slo=None, hardware=wider)
    return None


def _for_load(
    problem: Problem, hardware: Hardware, trial: Trial, factor: float, *, slo: Slo | None
) -> Nearest:
    """Return the GPUs that carry the load, when these carry `factor` of it."""
    if factor >= 1:
        return _answer(problem, trial, slo=slo or problem.filled.slo)
    copies = whole(trial.copies / factor / _GROWTH_HEADROOM)
    more = _hardware_of(problem, hardware, trial, copies)
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
        carried = "" if load is None else f": the present ones carry {figure(load)} requests/s"
        details.append(f"More copies share the load{carried}.")
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
        f"{name} {figure(getattr(new, name))} instead of {figure(getattr(old, name))}"
        for name in ("min_requests_per_s", "min_output_tokens_per_s")
        if getattr(new, name) != getattr(old, name)
    ]
    return [*latencies, *floors]


def _at(target: LatencyTarget) -> str:
    return "mean" if target.percentile == "mean" else f"p{target.percentile}"


def _hardware_of(problem: Problem, hardware: Hardware, trial: Trial, copies: int) -> Hardware:
    """Return the hardware with enough GPUs of the kind for that many copies."""
    each = trial.sized.topology.gpus
    gpus = copies * each
    widest = max(problem.node.gpus_per_node, min(gpus, _WIDEST_NODE))
    per_node = max(each, widest // each * each)
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
