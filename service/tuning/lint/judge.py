"""One engine judged: its release, what rules and grammar say, its estimate on the hardware."""

from typing import Literal

import msgspec

from api_schemas.check import CheckedEngine, CheckRequest
from api_schemas.estimate import Estimate
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from service.tuning.engine.versions import NEWEST, EngineVersion, parse_version
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.lint.estimating import Judging, Subject, judge_settings
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
from service.tuning.lint.own_files import OwnHeader, own_header
from service.tuning.lint.pasteable import pasteable
from service.tuning.lint.surroundings import is_said_for_the_chart, local_ranks, surroundings
from service.tuning.lint.text import SourceFile
from service.tuning.lint.upgrade import Step, changed_defaults, settled, with_history
from service.tuning.models.spec import ModelSpec

_ENV_RULES = "ENV"
_REFUSED_VALUE = "boolean-takes-no-value"
"""With it the setting never takes effect, so its effects are no findings."""


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
    source: Literal["image", "request", "file", "newest"]
    finding: Finding | None = None


def judge_engine(engine: FoundEngine, *, file: SourceFile, judging: Judging) -> Judged:
    """Return what rules, grammar and estimate say about one engine of a file."""
    request = judging.request
    header = own_header(file)
    release = _release(engine, request, file, header)
    read = interpret(engine, release.version)
    model = request.model or _model_ref(read)
    spec, unknown = _resolve(model, judging, engine, file)
    stated = request.hardware or _own_hardware(header, judging)
    hardware = None if read.unresolved else _widened(stated, read, engine)
    subject = Subject(model=model, spec=spec, hardware=hardware, usage=engine.usage)
    by_rules, estimate = judge_settings(read, subject, release.version, judging)
    findings = _all_findings(engine, read, by_rules, version=release.version, file=file)
    if request.from_version is not None and engine.form != "env":
        findings = _with_upgrade(
            engine, findings, subject=subject, release=release, judging=judging, file=file
        )
    extra = [finding for finding in (unknown, release.finding) if finding is not None]
    return Judged(
        checked=_checked(engine, read, release, model=model, estimate=estimate, file=file),
        version=release.version,
        findings=[*findings, *extra],
        estimate=estimate,
        gpus=local_ranks(read),
        missing=_missing(request, read, spec=spec, hardware=stated, estimate=estimate),
    )


def _all_findings(
    engine: FoundEngine,
    read: Interpreted,
    by_rules: list[Finding],
    *,
    version: EngineVersion,
    file: SourceFile,
) -> list[Finding]:
    """Return the findings of rules, grammar and readers with their places."""
    if engine.form == "env":
        alone = [finding for finding in by_rules if finding.rule.startswith(_ENV_RULES)]
        return placed(alone, read, file=file, otherwise=engine.span)
    refused = {p.problem.setting for p in read.problems if p.problem.code == _REFUSED_VALUE}
    kept = [
        finding
        for finding in by_rules
        if finding.severity == "error"
        or (finding.setting not in refused and not is_said_for_the_chart(finding, engine))
    ]
    in_its_words = [pasteable(finding, form=engine.form) for finding in kept]
    with_places = placed(in_its_words, read, file=file, otherwise=engine.span)
    return [
        *with_places,
        *problem_findings(read.problems, by_rules=with_places, version=version, file=file),
        *(remark_finding(remark, file) for remark in read.remarks),
        *(remark_finding(remark, file) for remark in surroundings(engine, read)),
    ]


def _with_upgrade(
    engine: FoundEngine,
    findings: list[Finding],
    *,
    subject: Subject,
    release: _Release,
    judging: Judging,
    file: SourceFile,
) -> list[Finding]:
    """Return the findings with what differs from the release that runs today."""
    old = parse_version(judging.request.from_version)
    read = interpret(engine, old)
    by_rules, _ = judge_settings(read, subject, old, judging, with_load=False)
    before = _all_findings(engine, read, by_rules, version=old, file=file)
    node = None if subject.hardware is None else resolve_hardware(subject.hardware)[0]
    step = Step(
        old=old,
        new=release.version,
        given=interpret(engine, release.version).config,
        spec=subject.spec,
        node=node,
        location=locate(file, engine.span),
        usage=engine.usage,
    )
    return [
        *with_history(findings, before, step),
        *settled(findings, before, step),
        *changed_defaults(step),
    ]


def _own_hardware(header: OwnHeader | None, judging: Judging) -> Hardware | None:
    """Return the hardware that our own header names, where memory is judged at all."""
    return None if header is None or judging.is_by_rules_alone else header.hardware


def _release(
    engine: FoundEngine, request: CheckRequest, file: SourceFile, header: OwnHeader | None
) -> _Release:
    stated = request.engine.version if request.engine is not None else None
    if stated is not None:
        return _Release(parse_version(stated), "request")
    if engine.version_text is not None:
        try:
            return _Release(parse_version(engine.version_text), "image")
        except TuningError as error:
            return _Release(NEWEST, "newest", _assumed(engine, file, error.message))
    if header is not None:
        return _Release(header.version, "file")
    if engine.form == "env":
        return _Release(NEWEST, "newest")
    return _Release(NEWEST, "newest", _assumed(engine, file, "No image tag says which vLLM runs."))


def _assumed(engine: FoundEngine, file: SourceFile, why: str) -> Finding:
    return gate_finding(
        "CHK002",
        f"{why.rstrip('.')}: it was checked for vLLM {NEWEST.text}, the newest known.",
        suggestion="State it as engine.version, or pin the image's tag.",
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
            f"Nothing was said about memory: {error.message.partition('. ')[0].rstrip('.')}.",
            suggestion="Give its config.json in model.config, or register it.",
            setting="model",
            location=locate(file, engine.span),
        )
        return None, finding


def _widened(hardware: Hardware | None, read: Interpreted, engine: FoundEngine) -> Hardware | None:
    """Return the hardware with as many GPUs as the container has or the settings need."""
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
    hardware: Hardware | None,
    estimate: Estimate | None,
) -> tuple[str, ...]:
    """Return why the engine could not be judged as far as the request asks."""
    has_targets = request.slo is not None or (
        request.policy is not None and bool(request.policy.targets)
    )
    if hardware is None:
        return ("targets are given, but no hardware",) if has_targets else ()
    if estimate is None:
        if read.unresolved:
            return (f"{', '.join(read.unresolved[:5])} cannot be resolved",)
        return ("its model is not known",) if spec is None else ("it could not be estimated",)
    if has_targets and request.workload is None:
        return ("targets are given, but no workload",)
    return ()
