"""One engine judged: its release, what rules and grammar say, its estimate on the hardware."""

from typing import Literal

import msgspec

from api_schemas.check import CheckedEngine, CheckRequest
from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.slo import Slo, TargetOutcome
from service.tuning.engine.versions import NEWEST, EngineVersion, parse_version
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.lint.figures import figures_of
from service.tuning.lint.findings import (
    gate_finding,
    locate,
    placed,
    problem_findings,
    remark_finding,
)
from service.tuning.lint.found import FoundEngine
from service.tuning.lint.interpret import Interpreted, interpret
from service.tuning.lint.surroundings import local_ranks, surroundings
from service.tuning.lint.text import SourceFile
from service.tuning.models.spec import ModelSpec
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext
from service.tuning.situation import ModelResolver

_ENV_RULES = "ENV"
_REFUSED_VALUE = "boolean-takes-no-value"
"""With it the setting never takes effect, so its effects are no findings."""


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """What all engines of a request are judged by."""

    request: CheckRequest
    resolve_model: ModelResolver


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one engine."""

    checked: CheckedEngine
    version: EngineVersion
    findings: list[Finding]
    estimate: Estimate | None
    gpus: int | None
    missing: tuple[str, ...]
    """Evidence that was asked for and is not there."""


class _Release(msgspec.Struct, frozen=True):
    version: EngineVersion
    source: Literal["image", "request", "newest"]
    finding: Finding | None = None


def judge_engine(engine: FoundEngine, *, file: SourceFile, judging: Judging) -> Judged:
    """Return what rules, grammar and estimate say about one engine of a file."""
    request = judging.request
    release = _release(engine, request, file)
    read = interpret(engine, release.version)
    model = request.model or _model_ref(read)
    spec, unknown = _resolve(model, judging, engine, file)
    hardware = None if spec is None or read.unresolved else _hardware(request, read, engine)
    findings, estimate = _judge(
        read,
        request=request,
        release=release,
        model=model,
        spec=spec,
        hardware=hardware,
        judging=judging,
    )
    if engine.form == "env":
        findings = [finding for finding in findings if finding.rule.startswith(_ENV_RULES)]
    refused = {p.problem.setting for p in read.problems if p.problem.code == _REFUSED_VALUE}
    findings = [f for f in findings if f.severity == "error" or f.setting not in refused]
    by_rules = placed(findings, read, file=file, otherwise=engine.span)
    own = (
        []
        if engine.form == "env"
        else [
            *problem_findings(read.problems, by_rules=by_rules, version=release.version, file=file),
            *(remark_finding(remark, file) for remark in read.remarks),
            *(remark_finding(remark, file) for remark in surroundings(engine, read)),
            *([unknown] if unknown else []),
            *([release.finding] if release.finding else []),
        ]
    )
    return Judged(
        checked=_checked(engine, read, release, model=model, estimate=estimate, file=file),
        version=release.version,
        findings=[*by_rules, *own],
        estimate=estimate,
        gpus=local_ranks(read),
        missing=_missing(request, read, spec=spec, estimate=estimate),
    )


def _release(engine: FoundEngine, request: CheckRequest, file: SourceFile) -> _Release:
    stated = request.engine.version if request.engine is not None else None
    if stated is not None:
        return _Release(parse_version(stated), "request")
    if engine.version_text is not None:
        try:
            return _Release(parse_version(engine.version_text), "image")
        except TuningError as error:
            return _Release(NEWEST, "newest", _assumed(engine, file, error.message))
    if engine.form == "env":
        return _Release(NEWEST, "newest")
    return _Release(NEWEST, "newest", _assumed(engine, file, "No image tag says which vLLM runs."))


def _assumed(engine: FoundEngine, file: SourceFile, why: str) -> Finding:
    return gate_finding(
        "CHK002",
        f"{why.rstrip('.')}: it was checked for vLLM {NEWEST.text}, the newest known.",
        suggestion="State it with --engine-version, or pin the image's tag.",
        location=locate(file, engine.span),
    )


def _model_ref(read: Interpreted) -> ModelRef | None:
    if read.model is None:
        return None
    try:
        return msgspec.convert({"id": read.model}, ModelRef)
    except msgspec.ValidationError:
        return None


def _resolve(
    model: ModelRef | None, judging: Judging, engine: FoundEngine, file: SourceFile
) -> tuple[ModelSpec | None, Finding | None]:
    if model is None:
        return None, None
    try:
        return judging.resolve_model(model), None
    except TuningError as error:
        finding = gate_finding(
            "CHK001",
            f"Nothing was said about memory: {error.message}",
            suggestion="Give its config.json in model.config, or register it.",
            setting="model",
            location=locate(file, engine.span),
        )
        return None, finding


def _hardware(request: CheckRequest, read: Interpreted, engine: FoundEngine) -> Hardware | None:
    """Return the hardware with as many GPUs as the container has or the settings need."""
    hardware = request.hardware
    if hardware is None or hardware.gpus_per_node is not None:
        return hardware
    node, _ = resolve_hardware(hardware)
    container = engine.container
    wanted = int(container.gpus) if container is not None and container.gpus else 0
    needed = max(wanted, local_ranks(read) or 1)
    if needed <= node.gpus_per_node or needed > 128:  # noqa: PLR2004  # the wire's own limit
        return hardware
    try:
        widened = msgspec.structs.replace(hardware, gpus_per_node=needed)
        resolve_hardware(widened)
    except TuningError:
        return hardware
    return widened


def _judge(
    read: Interpreted,
    *,
    request: CheckRequest,
    release: _Release,
    model: ModelRef | None,
    spec: ModelSpec | None,
    hardware: Hardware | None,
    judging: Judging,
) -> tuple[list[Finding], Estimate | None]:
    """Return findings of rules, with the estimate's where model and hardware are known."""
    given = request.engine.env if request.engine is not None and request.engine.env else {}
    env = {**given, **read.env}
    config = _with_stated(read.config, request)
    if model is None or spec is None or hardware is None:
        context = RuleContext(
            version=release.version,
            given=config,
            effective=config,
            spec=spec,
            workload=request.workload,
            slo=request.slo,
            env=env,
        )
        return check_rules(context), None
    asked = EstimateRequest(
        model=model,
        hardware=hardware,
        engine=Engine(version=release.version.text, config=config, env=env),
        workload=request.workload,
        slo=_slo(request),
    )
    # The simulation compiles code when it is imported: checks without hardware need none of it.
    from service.tuning.estimate import estimate  # noqa: PLC0415

    answer = estimate(asked, resolve_model=judging.resolve_model)
    return [*answer.findings, *_missed(answer)], answer


def _with_stated(config: EngineConfig, request: CheckRequest) -> EngineConfig:
    """Return the file's settings over those that the request states for all."""
    stated = request.engine.config if request.engine is not None else None
    if stated is None:
        return config
    return msgspec.convert(
        {**msgspec.to_builtins(stated), **msgspec.to_builtins(config)}, EngineConfig
    )


def _slo(request: CheckRequest) -> Slo | None:
    """Return the targets of request and policy together."""
    policy = request.policy
    if policy is None or (not policy.targets and policy.max_preemptions_per_request is None):
        return request.slo
    slo = request.slo or Slo()
    limit = policy.max_preemptions_per_request
    return msgspec.structs.replace(
        slo,
        targets=[*slo.targets, *(t for t in policy.targets if t not in slo.targets)],
        max_preemptions_per_request=slo.max_preemptions_per_request if limit is None else limit,
    )


def _missed(answer: Estimate) -> list[Finding]:
    return [_outcome_finding(outcome) for outcome in answer.slo if outcome.verdict != "met"]


def _outcome_finding(outcome: TargetOutcome) -> Finding:
    target = outcome.target
    name = str(target["metric"])
    if outcome.predicted_ms is not None:
        what = f"{name} p{target['percentile']}".replace("pmean", "mean")
        text = f"{what} is predicted at {outcome.predicted_ms:g} ms, the limit is"
        text += f" {target['limit_ms']:g} ms."
    else:
        text = f"{name} is predicted at {outcome.predicted:g}, the limit is {target['limit']:g}."
    is_missed = outcome.verdict == "missed"
    return gate_finding(
        "SLO001" if is_missed else "SLO002",
        text if is_missed else f"{text} The band holds both sides.",
        suggestion="Ask for settings that meet it: setpoint recommend with the same model,"
        " hardware, workload and targets.",
        setting=name,
    )


def _checked(
    engine: FoundEngine,
    read: Interpreted,
    release: _Release,
    *,
    model: ModelRef | None,
    estimate: Estimate | None,
    file: SourceFile,
) -> CheckedEngine:
    return CheckedEngine(
        title=engine.title,
        location=locate(file, engine.span),
        model=model.id if model is not None else read.model,
        version=release.version.text,
        version_source=release.source,
        config=read.config,
        unresolved=list(read.unresolved),
        fits=None if estimate is None else estimate.fits,
        figures={} if estimate is None else figures_of(estimate),
    )


def _missing(
    request: CheckRequest,
    read: Interpreted,
    *,
    spec: ModelSpec | None,
    estimate: Estimate | None,
) -> tuple[str, ...]:
    """Return why the engine could not be judged as far as the request asks."""
    has_targets = request.slo is not None or (
        request.policy is not None and bool(request.policy.targets)
    )
    if request.hardware is None:
        return ("targets are given, but no hardware",) if has_targets else ()
    if estimate is None:
        if read.unresolved:
            return (f"{', '.join(read.unresolved[:5])} cannot be resolved",)
        return ("its model is not known",) if spec is None else ("it could not be estimated",)
    if has_targets and request.workload is None:
        return ("targets are given, but no workload",)
    return ()
