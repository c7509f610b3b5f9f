"""The advice: which settings to launch with, why, and what to expect."""

from collections.abc import Sequence
from typing import Any

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate
from api_schemas.explanation import Decision, Finding
from api_schemas.recommendation import (
    Advice,
    Alternative,
    Binding,
    Constraints,
    Cost,
    Nearest,
    RenderedFile,
    Replicas,
    TuningRequest,
)
from service.tuning.advice_parts import (
    alternative,
    baseline_estimate,
    cost_of,
    estimate_of,
    replicas_of,
    rule_findings,
    understood,
)
from service.tuning.decisions.case import Case
from service.tuning.decisions.closest import decide_closest
from service.tuning.decisions.decide import decide
from service.tuning.decisions.guides import guide_findings
from service.tuning.decisions.headline import feasible_headline, infeasible_headline
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.models import catalogue
from service.tuning.presets import fill_workload
from service.tuning.provenance import provenance
from service.tuning.render.files import Rendering, render_all, watch_list
from service.tuning.search.alternatives import alternates
from service.tuning.search.baseline import baseline_of
from service.tuning.search.drafter import resolve_drafter
from service.tuning.search.emission import emitted
from service.tuning.search.finder import Found
from service.tuning.search.nearest_fit import memory_binding, nearest_that_fits
from service.tuning.search.nearest_slo import nearest_within_limits, slo_binding
from service.tuning.search.obstacles import is_beyond_model, model_ends, refused, too_dear
from service.tuning.search.pins import check_pins
from service.tuning.search.problem import Problem, pose_problem
from service.tuning.search.refining import fewer_copies
from service.tuning.search.sizing import plan_config
from service.tuning.search.trial import Trial
from service.tuning.search.usual_limits import find_within_usual_limits
from service.tuning.situation import ModelResolver

Calibrations = Sequence[Any]


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
    cost: Cost | None
    findings: list[Finding]


def recommend(
    request: TuningRequest,
    *,
    resolve_model: ModelResolver = catalogue.resolve_model,
    calibrations: Calibrations = (),
) -> Advice:
    """Return the settings for the request, with reasons, predictions, alternatives and files.

    "Does not fit" and "cannot meet the limits" are answers with the binding constraint and the
    nearest feasible change.

    Raises:
        TuningError: The model, GPU, version or architecture is unknown, or a value is nonsense.
    """
    problem, notes = understand(request, resolve_model=resolve_model, calibrations=calibrations)
    found = find_within_usual_limits(problem)
    if found.pick is None:
        core = _that_does_not_fit(request, problem, found)
    else:
        core = _that_fits(request, found.problem, found, found.pick)
    return _advice(request, found.problem, core, notes)


def understand(
    request: TuningRequest,
    *,
    resolve_model: ModelResolver = catalogue.resolve_model,
    calibrations: Calibrations = (),
) -> tuple[Problem, tuple[Finding, ...]]:
    """Return the problem that a request poses, and what the look-ups have to say.

    Raises:
        TuningError: The model, GPU, version or architecture is unknown, or a value is nonsense.
    """
    version = parse_version(request.engine.version if request.engine else None)
    constraints = request.constraints or Constraints()
    check_pins(constraints.pin, version)
    filled = fill_workload(request.workload, request.slo)
    node, hardware_notes = resolve_hardware(request.hardware)
    draft, draft_notes = resolve_drafter(request.model, resolve_model)
    problem = pose_problem(
        spec=resolve_model(request.model),
        model=request.model,
        draft=draft,
        node=node,
        version=version,
        filled=filled,
        objective=request.objective,
        posture=request.posture,
        constraints=constraints,
        calibration=next(iter(calibrations), None),
    )
    return problem, (*hardware_notes, *draft_notes)


def _that_fits(request: TuningRequest, problem: Problem, found: Found, pick: Trial) -> Core:
    """Return the answer for a configuration that starts, whether or not it meets the limits."""
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
    estimate = _estimate_of_pick(problem, config, pick, findings)
    binding, nearest = _obstacle(request, problem, pick, findings)
    fewer = fewer_copies(problem, pick) if pick.meets else None
    others = alternates(problem, found, fewer=fewer)
    return Core(
        feasible=binding is None,
        headline=feasible_headline(problem, pick)
        if binding is None
        else infeasible_headline(problem, binding, nearest),
        binding=binding,
        nearest=nearest,
        config=config,
        effective=pick.sized.effective,
        replicas=replicas_of(pick),
        decisions=decide(case),
        estimate=estimate,
        alternatives=[alternative(problem, other, pick) for other in others],
        cost=cost_of(problem, pick),
        findings=[*findings, *guide_findings(case)],
    )


def _estimate_of_pick(
    problem: Problem, config: EngineConfig, pick: Trial, findings: list[Finding]
) -> Estimate:
    return estimate_of(
        problem,
        config=config,
        effective=pick.sized.effective,
        plan=pick.sized.plan,
        performance=pick.performance,
        outcomes=pick.outcomes,
        findings=findings,
    )


def _obstacle(
    request: TuningRequest, problem: Problem, pick: Trial, findings: list[Finding]
) -> tuple[Binding | None, Nearest | None]:
    """Return what stands in the way of a pick that fits in memory, and what would help."""
    if is_beyond_model(problem):
        return model_ends(problem, pick)
    error = next((finding for finding in findings if finding.severity == "error"), None)
    if error is not None:
        return refused(error)
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


def _that_does_not_fit(request: TuningRequest, problem: Problem, found: Found) -> Core:
    """Return the answer when no legal layout fits: the closest one, and what would help."""
    if not found.misfits:
        return _no_layout(problem)
    binding, closest = memory_binding(found)
    nearest = nearest_that_fits(problem, request.hardware, closest)
    effective, _ = plan_config(problem, closest.config)
    config = emitted(problem, closest.config, effective)
    return _closest(problem, binding, nearest, config)


def _no_layout(problem: Problem) -> Core:
    """Return the answer when the pinned or allowed layouts are none that vLLM accepts."""
    binding = Binding(
        constraint="tensor_parallel_size",
        detail=(
            "No layout that vLLM accepts for this model is left on these GPUs within the "
            "constraints."
        ),
    )
    return _closest(problem, binding, None, problem.base)


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
        cost=None,
        findings=findings,
    )


def _advice(
    request: TuningRequest, problem: Problem, core: Core, notes: tuple[Finding, ...]
) -> Advice:
    findings = [*core.findings, *notes]
    return Advice(
        request=understood(request, problem),
        feasible=core.feasible,
        headline=core.headline,
        binding=core.binding,
        nearest=core.nearest,
        config=core.config,
        replicas=core.replicas,
        decisions=core.decisions,
        estimate=core.estimate,
        baseline=baseline_estimate(problem, baseline_of(problem)),
        alternatives=core.alternatives,
        cost=core.cost,
        findings=findings,
        watch=watch_list(
            problem.version,
            slo=problem.filled.slo,
            config=core.effective,
            model_name=problem.model.id,
        ),
        files=_files(problem, core, findings),
        provenance=provenance(problem.version),
    )


def _files(problem: Problem, core: Core, findings: list[Finding]) -> list[RenderedFile]:
    """Return the files ready to commit; none for what would not start."""
    if not core.estimate.fits:
        return []
    return render_all(
        Rendering(
            model_id=problem.model.id,
            config=core.config,
            version=problem.version,
            node=problem.node,
            replicas=max(1, core.replicas.count),
            slo=problem.filled.slo,
            effective=core.effective,
            headline=core.headline,
            decisions=tuple(core.decisions),
            findings=tuple(findings),
            assumptions=problem.filled.assumptions,
            estimate=core.estimate,
        )
    )
