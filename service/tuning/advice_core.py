"""The part of an advice that depends on whether the request can be met."""

import math

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.explanation import Decision, Finding
from api_schemas.hardware import Hardware
from api_schemas.recommendation import (
    Alternative,
    Binding,
    Compared,
    Cost,
    Nearest,
    Replicas,
    TuningRequest,
)
from service.tuning.advice_parts import (
    alternative,
    cost_of,
    estimate_of,
    gpus_of_one,
    replicas_of,
    rule_findings,
)
from service.tuning.decisions.case import Case
from service.tuning.decisions.closest import decide_closest
from service.tuning.decisions.decide import decide
from service.tuning.decisions.guides import guide_findings
from service.tuning.decisions.headline import feasible_headline, infeasible_headline
from service.tuning.engine.defaults import effective_config
from service.tuning.search.alternatives import Alternate, alternates
from service.tuning.search.compared import compared_layouts
from service.tuning.search.emission import emitted
from service.tuning.search.finder import Found, size_all
from service.tuning.search.nearest_fit import (
    memory_binding,
    nearest_that_fits,
    without_pinned_layout,
)
from service.tuning.search.nearest_slo import nearest_within_limits, slo_binding
from service.tuning.search.obstacles import length_ends, refused, too_dear
from service.tuning.search.problem import Problem
from service.tuning.search.refining import fewer_copies
from service.tuning.search.sizing import Sized, plan_config
from service.tuning.search.trial import Trial

_UNSERVED = frozenset({"VER008", "QNT009", "SPC001", "SPC002", "SPC008", "SPC009"})
"""Rules that know which release brought a model's code, or gave up its kind of weights, and those
that know a drafter which the model lacks."""


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an answer that depends on whether the request can be met."""

    feasible: bool
    headline: str
    binding: Binding | None
    nearest: Nearest | None
    config: EngineConfig
    effective: EngineConfig
    replicas: Replicas
    decisions: list[Decision]
    estimate: Estimate
    alternatives: list[Alternative]
    compared: list[Compared]
    cost: Cost | None
    findings: list[Finding]


def core_that_fits(
    request: TuningRequest, problem: Problem, found: Found, pick: Trial, *, is_step: bool = False
) -> Core:
    """Return the answer for a configuration that starts, whether or not it meets the limits.

    A mere step on the way to an answer needs neither alternatives nor reasons.
    """
    config = emitted(problem, pick.sized.config, pick.sized.effective)
    case = Case(
        problem=problem,
        found=found,
        pick=pick,
        config=config,
        defaults=_defaults_beside(problem, config),
    )
    findings = rule_findings(
        problem,
        config=config,
        effective=pick.sized.effective,
        plan=pick.sized.plan,
        copies=pick.copies,
    )
    starts = not any(finding.severity == "error" for finding in findings)
    estimate = _estimate_of_pick(problem, config, pick, findings, starts=starts)
    binding, nearest = _obstacle(request, problem, pick, findings)
    others = _others(problem, found, pick) if starts and not is_step else ()
    return Core(
        feasible=binding is None,
        headline=feasible_headline(problem, pick)
        if binding is None
        else infeasible_headline(problem, binding, nearest),
        binding=binding,
        nearest=nearest,
        config=config,
        effective=pick.sized.effective,
        replicas=replicas_of(pick, starts=starts),
        decisions=[] if is_step else decide(case),
        estimate=estimate,
        alternatives=[alternative(problem, other, pick) for other in others],
        compared=compared_layouts(problem, found, config=config) if starts and not is_step else [],
        cost=cost_of(problem, pick) if starts else None,
        findings=[*findings, *guide_findings(case)],
    )


def _others(problem: Problem, found: Found, pick: Trial) -> tuple[Alternate, ...]:
    """Return other points of the front that vLLM starts with."""
    fewer = fewer_copies(problem, pick) if pick.meets else None
    others = alternates(problem, found, fewer=fewer)
    return tuple(other for other in others if _starts(problem, other.trial.sized))


def _estimate_of_pick(
    problem: Problem, config: EngineConfig, pick: Trial, findings: list[Finding], *, starts: bool
) -> Estimate:
    """Return the what-if of one copy; what does not start gets no latency, as in any what-if."""
    return estimate_of(
        problem,
        config=config,
        effective=pick.sized.effective,
        plan=pick.sized.plan,
        performance=pick.performance if starts else None,
        outcomes=pick.outcomes if starts else (),
        findings=findings,
    )


def _obstacle(
    request: TuningRequest, problem: Problem, pick: Trial, findings: list[Finding]
) -> tuple[Binding | None, Nearest | None]:
    """Return what stands in the way of a pick that fits in memory, and what would help."""
    error = next((finding for finding in findings if finding.severity == "error"), None)
    if error is not None:
        return refused(problem, error)
    if not pick.meets:
        return slo_binding(pick), nearest_within_limits(problem, request.hardware, pick)
    limit, cost = problem.filled.slo.max_cost_per_million_output_tokens, cost_of(problem, pick)
    if limit is None or cost is None or cost.per_million_output_tokens is None:
        return None, None
    if cost.per_million_output_tokens <= limit:
        return None, None
    return too_dear(problem, pick, cost=cost.per_million_output_tokens, limit=limit)


def _defaults_beside(problem: Problem, config: EngineConfig) -> EngineConfig:
    """Return what vLLM would take by itself for the picked layout."""
    layout = EngineConfig(
        tensor_parallel_size=config.tensor_parallel_size,
        pipeline_parallel_size=config.pipeline_parallel_size,
        data_parallel_size=config.data_parallel_size,
        enable_expert_parallel=config.enable_expert_parallel,
    )
    return effective_config(layout, spec=problem.spec, node=problem.node, version=problem.version)


def core_that_does_not_fit(request: TuningRequest, problem: Problem, found: Found) -> Core:
    """Return the answer when no legal layout fits: the closest one, and what would help."""
    if not found.misfits:
        return _no_layout(request, problem)
    binding, closest = memory_binding(found)
    nearest = nearest_that_fits(problem, request.hardware, closest, starts=_starts)
    effective, _ = plan_config(problem, closest.config)
    config = emitted(problem, closest.config, effective)
    return _refused_release(_closest(problem, binding, nearest, config), problem)


def _refused_release(core: Core, problem: Problem) -> Core:
    """Return the answer with release or drafter in the way, where no hardware would help.

    That decides before memory does.
    """
    error = next((found for found in core.findings if found.rule in _UNSERVED), None)
    if error is None or error.severity != "error":
        return core
    binding, nearest = refused(problem, error)
    headline = infeasible_headline(problem, binding, nearest)
    return msgspec.structs.replace(core, binding=binding, nearest=nearest, headline=headline)


def _starts(problem: Problem, sized: Sized) -> bool:
    """Whether no rule refuses the layout: memory alone is not all that vLLM asks for."""
    findings = rule_findings(
        problem,
        config=emitted(problem, sized.config, sized.effective),
        effective=sized.effective,
        plan=sized.plan,
    )
    return all(finding.severity != "error" for finding in findings)


def core_that_is_too_long(request: TuningRequest, problem: Problem) -> Core:
    """Return the answer when a typical request is longer than the model or the pinned length.

    Nothing is predicted: hardly any request of this load would be served.
    """
    sized, misfits = size_all(problem)
    if not sized:
        found = Found(
            problem=problem,
            pick=None,
            trials=(),
            finalists=(),
            misfits=tuple(misfits),
            token_trials=(),
        )
        return core_that_does_not_fit(request, problem, found)
    config = emitted(problem, sized[0].config, sized[0].effective)
    binding, nearest = length_ends(problem, config)
    return _closest(problem, binding, nearest, config)


def _no_layout(request: TuningRequest, problem: Problem) -> Core:
    """Return the answer when the pinned or allowed layouts are none that vLLM accepts."""
    pinned = gpus_of_one(problem.pin)
    detail = (
        f"The pinned layout takes {pinned} GPUs, but there are {problem.node.num_gpus}."
        if pinned > problem.node.num_gpus
        else "No layout that vLLM accepts for this model is left on these GPUs within the "
        "constraints."
    )
    binding = Binding(constraint="tensor_parallel_size", detail=detail)
    nearest = without_pinned_layout(problem) or _enough_for_pin(problem, request.hardware)
    return _refused_release(_closest(problem, binding, nearest, problem.base), problem)


def _enough_for_pin(problem: Problem, hardware: Hardware) -> Nearest | None:
    """Return as many GPUs as the pinned layout takes; None where they are not what is missing."""
    pinned, node = gpus_of_one(problem.pin), problem.node
    if pinned <= node.num_gpus:
        return None
    per_node = math.ceil(pinned / node.nodes)
    gpus = per_node * node.nodes
    return Nearest(
        change=f"{gpus} x {node.gpu.name} instead of {node.num_gpus}",
        config=None,
        hardware=msgspec.structs.replace(hardware, gpus_per_node=per_node),
        slo=None,
        detail="The pinned layout takes as many.",
    )


def _closest(
    problem: Problem, binding: Binding, nearest: Nearest | None, config: EngineConfig
) -> Core:
    effective, plan = plan_config(problem, config)
    findings = rule_findings(problem, config=config, effective=effective, plan=plan)
    estimate = estimate_of(
        problem,
        config=config,
        effective=effective,
        plan=plan,
        performance=None,
        outcomes=(),
        findings=findings,
    )
    return Core(
        feasible=False,
        headline=infeasible_headline(problem, binding, nearest),
        binding=binding,
        nearest=nearest,
        config=config,
        effective=effective,
        replicas=Replicas(count=0, gpus=0, requests_per_s_each=None),
        decisions=decide_closest(problem, config, binding),
        estimate=estimate,
        alternatives=[],
        compared=[],
        cost=None,
        findings=findings,
    )
