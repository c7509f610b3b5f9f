"""A way out of an infeasible request that holds when it is asked for."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.hardware import Hardware
from api_schemas.recommendation import Constraints, Nearest, TuningRequest
from api_schemas.slo import Slo
from service.tuning.advice_core import Core
from service.tuning.decisions.headline import infeasible_headline
from service.tuning.search.figures import figure
from service.tuning.search.nearest_fit import larger_hardware
from service.tuning.search.nearest_slo import RELAXED, changes_of_limits, reachable_slo
from service.tuning.search.problem import Problem

T = TypeVar("T")
_STEPS = 5
"""Changes that are made one upon the other before the last obstacle is named instead."""
_NOTEWORTHY = 1.5
"""Relaxed limits this far above what is needed are tightened again."""
_OTHER_GPUS = 2
"""Larger parts that are tried where the present part is refused."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A request with its answer."""

    request: TuningRequest
    problem: Problem
    core: Core


Ask = Callable[[TuningRequest], Answered]


def with_way_out(first: Answered, ask: Ask) -> Core:
    """Return the answer with a nearest change that was asked for again and is feasible.

    The change is followed up to five times, each on top of the last; where that ends at another
    obstacle, pins are let go of and larger parts tried. What still stands in the way afterwards
    is said.
    """
    core = first.core
    if core.feasible:
        return core
    stuck: Answered | None = None
    for changed in _starting_points(first):
        last = _followed(changed, ask)
        if last.core.feasible:
            return _with_nearest(first, _offer(first, _tightened(first, last, ask)))
        # Where nearest is a sentence for people, no failed attempt of ours is better than it.
        is_offered = core.nearest is not None and _changed(first.request, core.nearest) != (
            first.request
        )
        stuck = stuck or (last if is_offered else None)
    return core if stuck is None else _with_nearest(first, _still(first, stuck))


def _starting_points(first: Answered) -> Iterator[TuningRequest]:
    """Yield the changed requests worth asking, nearest first."""
    nearest, request, problem = first.core.nearest, first.request, first.problem
    if nearest is None:
        # Nothing else helps with what is pinned: the pins are what stands in the way.
        if problem.pin != EngineConfig():
            yield _let_go(request)
        return
    if (changed := _changed(request, nearest)) != request:
        yield changed
    elif nearest.config is not None:
        # Only people can act on it: another checkpoint, or shorter requests.
        return
    if problem.pin != EngineConfig():
        yield _let_go(request)
    for count, asked in enumerate(larger_hardware(problem.node, request.hardware)):
        if count == _OTHER_GPUS or nearest.hardware is not None:
            return
        yield msgspec.structs.replace(request, hardware=asked)


def _let_go(request: TuningRequest) -> TuningRequest:
    """Return the request without any pin."""
    constraints = msgspec.structs.replace(request.constraints or Constraints(), pin=None)
    return msgspec.structs.replace(request, constraints=constraints)


def _followed(request: TuningRequest, ask: Ask) -> Answered:
    """Return the answer after up to five changes, feasible or not."""
    answered = ask(request)
    for _ in range(_STEPS - 1):
        nearest = answered.core.nearest
        if answered.core.feasible or nearest is None:
            break
        request = _changed(answered.request, nearest)
        if request == answered.request:
            break
        answered = ask(request)
    return answered


def _tightened(first: Answered, last: Answered, ask: Ask) -> Answered:
    """Return the answer with limits no looser than it needs: later changes may have helped."""
    performance, relaxed = last.core.estimate.performance, last.request.slo
    stated = first.problem.filled.slo
    if performance is None or relaxed is None or len(relaxed.targets) != len(stated.targets):
        return last
    reached = reachable_slo(stated, performance, room=RELAXED).targets
    pairs = zip(reached, relaxed.targets, strict=True)
    if all(need.limit_ms * _NOTEWORTHY >= limit.limit_ms for need, limit in pairs):
        return last
    slo = msgspec.structs.replace(relaxed, targets=reached)
    again = ask(msgspec.structs.replace(last.request, slo=slo))
    return again if again.core.feasible else last


def _changed(request: TuningRequest, nearest: Nearest) -> TuningRequest:
    """Return the request with the change made."""
    return msgspec.structs.replace(
        request,
        hardware=nearest.hardware or request.hardware,
        slo=nearest.slo or request.slo,
        workload=nearest.workload or request.workload,
        constraints=nearest.constraints or request.constraints,
        engine=nearest.engine or request.engine,
    )


def _with_nearest(first: Answered, nearest: Nearest) -> Core:
    core = first.core
    headline = core.headline
    if core.binding is not None:
        headline = infeasible_headline(first.problem, core.binding, nearest)
    return msgspec.structs.replace(core, nearest=nearest, headline=headline)


def _offer(first: Answered, last: Answered) -> Nearest:
    """Return all changes between the first and the last request as one offer."""
    nearest = first.core.nearest
    if nearest is not None and _changed(first.request, nearest) == last.request:
        return msgspec.structs.replace(nearest, config=last.core.config)
    return _between(first, last, detail=f"Asked again with this: {last.core.headline}")


def _still(first: Answered, last: Answered) -> Nearest:
    """Return the changes as they are, with what they do not cure: said too, where people can."""
    binding, further = last.core.binding, last.core.nearest
    remains = "" if binding is None else f" {binding.detail}"
    if further is None or _changed(last.request, further) != last.request:
        return _between(
            first, last, detail=f"Asked again with this, it still cannot be met:{remains}"
        )
    made = _between(first, last, detail="")
    return msgspec.structs.replace(
        made,
        change=f"{made.change}, and {further.change}",
        detail=f"All of it is needed:{remains} {further.detail}",
    )


def _between(first: Answered, last: Answered, *, detail: str) -> Nearest:
    before, after = first.request, last.request
    return Nearest(
        change=" and ".join(_spoken(first, last)) or "another model or hardware",
        config=last.core.config,
        hardware=_new(before.hardware, after.hardware),
        slo=_new(before.slo, after.slo),
        detail=detail,
        workload=_new(before.workload, after.workload),
        constraints=_new(before.constraints, after.constraints),
        engine=_new(before.engine, after.engine),
    )


def _new(before: T, after: T) -> T | None:
    return after if after != before else None


def _spoken(first: Answered, last: Answered) -> Iterator[str]:
    """Yield what differs between two requests, in words."""
    before, after = first.request, last.request
    if before.engine != after.engine:
        yield f"vLLM {last.problem.version.text} instead of {first.problem.version.text}"
    if before.hardware != after.hardware:
        yield _spoken_hardware(before.hardware, after.hardware, first, last)
    if before.constraints != after.constraints:
        yield from _spoken_constraints(
            before.constraints or Constraints(), after.constraints or Constraints()
        )
    relaxed = _spoken_limits(first.problem.filled.slo, after.slo)
    if before.slo != after.slo and relaxed:
        yield f"relax {', '.join(relaxed)}"
    rate = last.problem.demand.requests_per_s
    if before.workload != after.workload and rate is not None:
        yield f"lower the load to about {rate:.2g} requests/s"


def _spoken_hardware(old: Hardware, new: Hardware, first: Answered, last: Answered) -> str:
    node, other = first.problem.node, last.problem.node
    instead = str(node.num_gpus) if old.gpu == new.gpu else f"{node.num_gpus} x {node.gpu.name}"
    return f"{other.num_gpus} x {other.gpu.name} instead of {instead}"


def _spoken_constraints(old: Constraints, new: Constraints) -> Iterator[str]:
    was, now = old.pin or EngineConfig(), new.pin or EngineConfig()
    dropped = [
        f"{name} {getattr(was, name)}"
        for name in was.__struct_fields__
        if getattr(was, name) is not None and getattr(now, name) is None
    ]
    if dropped:
        yield f"without the pinned {', '.join(dropped)}"
    if old.max_tensor_parallel_size is not None and new.max_tensor_parallel_size is None:
        yield f"without the limit of {old.max_tensor_parallel_size} on tensor_parallel_size"
    if now.max_model_len is not None and now.max_model_len != was.max_model_len:
        yield f"accept requests of at most {now.max_model_len} tokens"
    if new.allow_fp8_kv_cache and not old.allow_fp8_kv_cache:
        yield "allow an 8-bit KV cache"


def _spoken_limits(old: Slo, new: Slo | None) -> list[str]:
    if new is None or len(new.targets) != len(old.targets):
        return []
    ceiling = new.max_cost_per_million_output_tokens
    dearer = ceiling is not None and ceiling != old.max_cost_per_million_output_tokens
    cost = [f"the cost of a million output tokens to {figure(ceiling or 0.0)}"] if dearer else []
    return [*changes_of_limits(old, new), *cost]
