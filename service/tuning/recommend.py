"""The advice: which settings to launch with, why, and what to expect."""

import msgspec

from api_schemas.explanation import Finding
from api_schemas.model import ModelRef
from api_schemas.recommendation import (
    Advice,
    Constraints,
    RenderedFile,
    TuningRequest,
)
from service.tuning.advice_core import (
    Core,
    core_that_does_not_fit,
    core_that_fits,
    core_that_is_too_long,
)
from service.tuning.advice_parts import (
    all_copies,
    baseline_estimate,
    understood,
)
from service.tuning.calibrations.known import Calibrations
from service.tuning.engine.versions import parse_version
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.models import catalogue
from service.tuning.models.spec import ModelSpec
from service.tuning.presets import FilledWorkload, fill_workload
from service.tuning.render.files import Rendering, decision_record, render_all, watch_list
from service.tuning.search.baseline import baseline_of
from service.tuning.search.drafter import resolve_drafter
from service.tuning.search.finder import find_best, find_some
from service.tuning.search.obstacles import is_beyond_length
from service.tuning.search.pins import check_pins
from service.tuning.search.problem import Problem, pose_problem
from service.tuning.search.usual_limits import find_within_usual_limits
from service.tuning.situation import ModelResolver
from service.tuning.way_out import Answered, with_way_out


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
    answered = _solved(request, problem)

    def ask(changed: TuningRequest) -> Answered:
        posed, _ = understand(changed, resolve_model=resolve_model, calibrations=calibrations)
        if posed.version == problem.version:
            posed = msgspec.structs.replace(posed, runs=problem.runs)
        return _solved(changed, posed, is_step=True)

    core = with_way_out(answered, ask)
    return _advice(answered.request, answered.problem, core, notes)


def _solved(request: TuningRequest, problem: Problem, *, is_step: bool = False) -> Answered:
    """Return the request with its answer, whose nearest change nobody has tried yet."""
    request = _with_names(request, problem)
    if is_beyond_length(problem):
        core = core_that_is_too_long(request, problem)
        return Answered(request=request, problem=problem, core=core)
    found = find_within_usual_limits(problem, find=find_some if is_step else find_best)
    if found.pick is None:
        core = core_that_does_not_fit(request, problem, found)
        return Answered(request=request, problem=problem, core=core)
    core = core_that_fits(request, found.problem, found, found.pick, is_step=is_step)
    return Answered(request=request, problem=found.problem, core=core)


def _with_names(request: TuningRequest, problem: Problem) -> TuningRequest:
    """Return the request with the model, the part and the number of GPUs that its names mean."""
    hardware, node = request.hardware, problem.node
    named = msgspec.structs.replace(
        hardware,
        gpu=hardware.gpu if hardware.spec is not None else node.gpu.name,
        gpus_per_node=node.gpus_per_node,
        nodes=node.nodes,
    )
    return msgspec.structs.replace(request, hardware=named, model=problem.model)


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
    spec = resolve_model(request.model)
    filled = _with_name_said(fill_workload(request.workload, request.slo), request.model, spec)
    node, hardware_notes = resolve_hardware(request.hardware)
    draft, draft_notes = resolve_drafter(request.model, resolve_model)
    problem = pose_problem(
        spec=spec,
        model=msgspec.structs.replace(request.model, id=spec.id),
        draft=draft,
        node=node,
        version=version,
        filled=filled,
        objective=request.objective,
        posture=request.posture,
        constraints=constraints,
        calibrations=calibrations,
    )
    return problem, (*hardware_notes, *draft_notes)


def _with_name_said(filled: FilledWorkload, model: ModelRef, spec: ModelSpec) -> FilledWorkload:
    """Return the workload with a word on which model a short name is taken for."""
    if spec.id.casefold() == model.id.casefold():
        return filled
    sentence = f"{model.id} is taken for {spec.id}: vLLM loads models by their full names."
    return msgspec.structs.replace(filled, assumptions=(sentence, *filled.assumptions))


def _advice(
    request: TuningRequest, problem: Problem, core: Core, notes: tuple[Finding, ...]
) -> Advice:
    findings = [*core.findings, *notes]
    baseline = baseline_of(problem)
    defaults = baseline_estimate(problem, baseline)
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
        all_copies=all_copies(
            problem, core.estimate, count=core.replicas.count, gpus=core.replicas.gpus
        ),
        baseline=defaults,
        baseline_all_copies=all_copies(
            problem,
            defaults,
            count=baseline.copies,
            gpus=baseline.copies * (baseline.effective.tensor_parallel_size or 1),
        ),
        alternatives=core.alternatives,
        compared=core.compared,
        cost=core.cost,
        findings=findings,
        watch=watch_list(
            problem.version,
            slo=problem.filled.slo,
            config=core.effective,
            model_name=problem.model.id,
        ),
        files=_files(problem, core, findings),
        provenance=core.estimate.provenance,
    )


def _files(problem: Problem, core: Core, findings: list[Finding]) -> list[RenderedFile]:
    """Return the files ready to commit; the record alone for what would not start."""
    rendering = Rendering(
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
    return render_all(rendering) if core.estimate.fits else [decision_record(rendering)]
