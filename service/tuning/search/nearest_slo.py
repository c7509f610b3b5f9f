"""The nearest change that brings a load within its limits."""

import math

import msgspec

from api_schemas.estimate import Performance
from api_schemas.hardware import Hardware
from api_schemas.recommendation import Binding, Nearest
from api_schemas.slo import LatencyTarget, Slo, TargetOutcome
from api_schemas.workload import ClosedLoop, Workload
from service.tuning.search.carried import carried_factor
from service.tuning.search.demand import requests_per_s
from service.tuning.search.emission import emitted
from service.tuning.search.figures import figure
from service.tuning.search.problem import Problem, whole
from service.tuning.search.share import scaled
from service.tuning.search.trial import Trial, predict, try_out

RELAXED = 1.1
"""A relaxed limit leaves a tenth above what is predicted."""
_ROOM = 1.5
"""Above what one request alone takes, so that a limit leaves room for others."""
_WIDEST_NODE = 8
_MULTIPLES = (2, 4, 8, 16, 32, 64)
_FLOORS = frozenset({"requests_per_s", "output_tokens_per_s"})
_LOAD_BRINGS_NO_MORE = (
    "Every request is answered; the stated load does not bring more, on any hardware."
)
_MOST_GPUS = 512
"""More than any one service is run on; a load beyond them is no question of settings."""
_LONG_MS = 1e5
"""From here on figures are grouped: a power of ten is hard to read as a time."""
_LITTLE = 0.02
"""A load cut to less than this share of itself is no offer while limits are the reason."""
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
    metric = str(worst.target.get("metric", "slo"))
    if trial.is_open_loop and metric in _FLOORS:
        missed = _missed(worst, loaded_copies=trial.loaded_copies)
        return Binding(constraint=metric, detail=f"{missed} {_LOAD_BRINGS_NO_MORE}")
    return Binding(constraint=metric, detail=_missed(worst, loaded_copies=trial.loaded_copies))


def _missed(outcome: TargetOutcome, *, loaded_copies: float) -> str:
    """Return what is missed by how much; throughput of all copies, as it was asked for."""
    target = outcome.target
    if outcome.predicted_ms is not None:
        percentile = str(target.get("percentile", ""))
        at = percentile if percentile == "mean" else f"p{percentile}"
        return (
            f"The {target['metric']} {at} is predicted at {figure(outcome.predicted_ms)} ms, but "
            f"the limit is {figure(float(target['limit_ms']))} ms."
        )
    times = loaded_copies if target.get("metric") in _FLOORS else 1.0
    return (
        f"{target.get('metric')} is predicted at {figure((outcome.predicted or 0.0) * times)}, but "
        f"the limit is {figure(float(target.get('limit', 0.0)) * times)}."
    )


def nearest_within_limits(problem: Problem, hardware: Hardware, trial: Trial) -> Nearest:
    """Return more GPUs where the load is too much, limits within reach, or both.

    Limits that even a lonely request breaks are relaxed first; whether the load then needs more
    copies is another question, asked with the relaxed ones.
    """
    if _misses_only_floors(trial):
        # A floor without a stated load is the load: a lower one must not lower that as well.
        kept = problem.filled.workload if trial.is_open_loop else None
        return msgspec.structs.replace(_at_this_load(problem, trial), workload=kept)
    if not trial.is_open_loop:
        return _spread_clients(problem, hardware, trial) or _at_this_load(problem, trial)
    factor = carried_factor(problem, trial)
    if factor is not None and factor >= _LITTLE:
        return _for_load(problem, hardware, trial, factor)
    # The settings were chosen for limits out of reach: what they carry says nothing about others.
    slo = reachable_slo(problem.filled.slo, _alone(problem, trial), room=_ROOM)
    if slo == problem.filled.slo and factor is not None:
        return _for_load(problem, hardware, trial, factor)
    if slo == problem.filled.slo:
        # A lonely request keeps them all: it is the bursts that do not.
        return _at_this_load(problem, trial)
    return _answer(problem, trial, slo=slo)


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
        if copies * trial.sized.topology.gpus <= problem.node.num_gpus:
            continue
        more = try_out(problem, trial.sized, copies=copies, method="simulation")
        if more.meets:
            wider = _hardware_of(problem, hardware, trial, copies)
            if wider is None:
                return None
            return _answer(problem, trial, slo=None, hardware=wider)
    return None


def _for_load(problem: Problem, hardware: Hardware, trial: Trial, factor: float) -> Nearest:
    """Return the GPUs that carry the load, when these carry `factor` of it."""
    if factor >= 1:
        # On average the load fits; its bursts break the limits, or the queue never empties.
        offered = problem.demand.requests_per_s or 0.0
        if trial.performance.saturated:
            return _answer(problem, trial, slo=None, load=offered * _GROWTH_HEADROOM)
        return _at_this_load(problem, trial)
    copies = whole(trial.copies / factor / _GROWTH_HEADROOM)
    more = _hardware_of(problem, hardware, trial, copies)
    if more is None:
        return _beyond_all(problem, trial, factor)
    load = (problem.demand.requests_per_s or 0.0) * factor
    if (more.gpus_per_node or 1) * more.nodes <= problem.node.num_gpus:
        # These GPUs are there already: the load is what has to give way.
        return _answer(problem, trial, slo=None, load=load * _GROWTH_HEADROOM)
    return _answer(problem, trial, slo=None, hardware=more, load=load)


def _beyond_all(problem: Problem, trial: Trial, factor: float) -> Nearest:
    """Return the load that these GPUs carry, where no sensible number of them carries the stated.

    One node is the measure that people plan with, so its share is said too.
    """
    offered = problem.demand.requests_per_s or 0.0
    load = offered * factor * _GROWTH_HEADROOM
    answer = _answer(problem, trial, slo=None, load=load)
    return msgspec.structs.replace(
        answer,
        detail=(
            f"No sensible amount of this hardware carries {figure(offered)} requests/s: one node "
            f"of {problem.node.gpus_per_node} x {problem.node.gpu.name} carries about "
            f"{figure(load / problem.node.nodes)}. {answer.detail}"
        ).rstrip(),
    )


def _alone(problem: Problem, trial: Trial) -> Performance:
    """Return the prediction for one request at a time."""
    workload = msgspec.structs.replace(
        problem.filled.workload, arrivals=ClosedLoop(max_concurrency=1)
    )
    return predict(problem, trial.sized, workload, Slo(), method="simulation")[0]


def _at_this_load(problem: Problem, trial: Trial) -> Nearest:
    """Return limits just above what is predicted for a load that waits for answers."""
    slo = reachable_slo(problem.filled.slo, trial.performance, room=RELAXED)
    slo = msgspec.structs.replace(
        slo,
        min_requests_per_s=_at_most(slo.min_requests_per_s, trial.requests_per_s / RELAXED),
        min_output_tokens_per_s=_at_most(
            slo.min_output_tokens_per_s, trial.output_tokens_per_s / RELAXED
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
    lighter = None if hardware is not None or load is None else _at_load(problem, load)
    if lighter is not None:
        slo = _floors_at(problem, slo or problem.filled.slo, lighter)
    if hardware is not None:
        gpus = (hardware.gpus_per_node or 1) * hardware.nodes
        parts.append(f"{gpus} x {problem.node.gpu.name} instead of {problem.node.num_gpus}")
        carried = "" if load is None else f": the present ones carry {figure(load)} requests/s"
        details.append(f"More copies share the load{carried}.")
    changed = changes_of_limits(problem.filled.slo, slo) if slo is not None else []
    if changed:
        parts.append("relax " + ", ".join(changed))
        details.append(_why_relaxed(trial))
    if lighter is not None:
        parts.append(f"lower the load to about {figure(_rate(lighter))} requests/s")
    return Nearest(
        change=" and ".join(parts) or "lower the load",
        config=emitted(problem, trial.sized.config, trial.sized.effective),
        hardware=hardware,
        slo=None if slo == problem.filled.slo else slo,
        detail=" ".join(details),
        workload=lighter,
    )


def _floors_at(problem: Problem, slo: Slo, workload: Workload) -> Slo:
    """Return the limits with floors no higher than what so little load can bring."""
    rate = _rate(workload) / RELAXED
    tokens_per_s = rate * problem.demand.output_mean_tokens
    return msgspec.structs.replace(
        slo,
        min_requests_per_s=_at_most(slo.min_requests_per_s, rate),
        min_output_tokens_per_s=_at_most(slo.min_output_tokens_per_s, tokens_per_s),
    )


def _rate(workload: Workload) -> float:
    arrivals = workload.arrivals
    return (requests_per_s(arrivals) if arrivals is not None else None) or 0.0


def _why_relaxed(trial: Trial) -> str:
    """Return whether hardware or load stands in the way, and what the hardware would carry."""
    if not (trial.is_open_loop and _misses_only_floors(trial)):
        return "This hardware does not reach the stated limits; the relaxed ones it does."
    carried = trial.capacity_requests_per_s
    more = "" if carried is None else f"; the hardware carries up to {figure(carried)} requests/s"
    return f"The load brings no more than this{more}. Bring more load to reach the stated floor."


def _at_load(problem: Problem, load: float) -> Workload:
    """Return the workload at the rate, rounded down to two figures."""
    offered = problem.demand.requests_per_s or load
    step = 10.0 ** (math.floor(math.log10(load)) - 1)
    rounded = float(f"{math.floor(load / step + 1e-9) * step:.2g}")
    return scaled(problem.filled.workload, rounded / offered)


def changes_of_limits(old: Slo, new: Slo) -> list[str]:
    """Return each latency limit and floor that differs, in words."""
    latencies = [
        f"{after.metric} {_at(after)} {_ms(after)} instead of {_ms(before)}"
        for before, after in zip(old.targets, new.targets, strict=True)
        if after != before
    ]
    floors = [
        f"{name} {figure(getattr(new, name))} instead of {figure(getattr(old, name))}"
        for name in ("min_requests_per_s", "min_output_tokens_per_s")
        if getattr(new, name) != getattr(old, name)
    ]
    return [*latencies, *floors]


def _ms(target: LatencyTarget) -> str:
    limit = target.limit_ms
    return f"{limit:g} ms" if limit < _LONG_MS else f"{limit:,.0f} ms"


def _at(target: LatencyTarget) -> str:
    return "mean" if target.percentile == "mean" else f"p{target.percentile}"


def _hardware_of(
    problem: Problem, hardware: Hardware, trial: Trial, copies: int
) -> Hardware | None:
    """Return the hardware with enough GPUs of the kind for that many copies, if sensible."""
    each = trial.sized.topology.gpus
    gpus = copies * each
    if gpus > max(_MOST_GPUS, problem.node.num_gpus):
        return None
    widest = max(problem.node.gpus_per_node, min(gpus, _WIDEST_NODE))
    per_node = widest // each * each or widest
    return msgspec.structs.replace(hardware, gpus_per_node=per_node, nodes=whole(gpus / per_node))


def reachable_slo(slo: Slo, performance: Performance, *, room: float) -> Slo:
    """Return the limits, those that are missed at `room` times their prediction."""
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
