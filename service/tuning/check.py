"""The gate: is this configuration safe to roll out, and did it get worse?"""

from collections.abc import Sequence

import msgspec

from api_schemas.check import (
    CheckFile,
    CheckReport,
    CheckRequest,
    Counts,
    Policy,
)
from api_schemas.estimate import Estimate
from api_schemas.explanation import Finding
from service.tuning.calibrations.known import Calibrations
from service.tuning.engine.versions import NEWEST, parse_version
from service.tuning.errors import InvalidRequest, UnknownEngineVersion
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.lint.config_files import ConfigFiles
from service.tuning.lint.estimating import Judging
from service.tuning.lint.findings import (
    fingerprints,
    gate_finding,
    in_order,
    locate,
    remark_finding,
)
from service.tuning.lint.fixing import fixed_file
from service.tuning.lint.found import Reading
from service.tuning.lint.judge import Judged, judge_engine
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.model_memory import remembering
from service.tuning.lint.own_files import own_header
from service.tuning.lint.reading import read_command, read_file
from service.tuning.lint.stated import stated_engine
from service.tuning.lint.text import SourceFile, Span
from service.tuning.models import catalogue
from service.tuning.policy import Evidence, judge_policy
from service.tuning.provenance import provenance
from service.tuning.situation import ModelResolver

SCHEMA_VERSION = 1
_COMMAND = "command"
_CONFIG = "config"


def check(
    request: CheckRequest,
    *,
    today: str,
    resolve_model: ModelResolver = catalogue.resolve_model,
    calibrations: Calibrations = (),
) -> CheckReport:
    """Return verdict, findings with their places, and estimates where hardware is stated.

    `today` is a day as YYYY-MM-DD: waivers end by it, and measurements age by it.

    Raises:
        TuningError: The request itself names something unknown or contradicts itself. What files
            hold is never a reason to raise: it becomes findings.
    """
    judging = _judging(request, resolve_model, calibrations)
    judged: list[Judged] = []
    findings: list[Finding] = []
    fixed: list[CheckFile] = []
    found = _readings(request, findings)
    together = ConfigFiles(found)
    for file, reading in found:
        findings += [remark_finding(remark, file) for remark in reading.remarks]
        is_part = together.is_part(file)
        by = _by_rules_alone(judging) if is_part else judging
        ours = [judge_engine(together.whole(e), file=file, judging=by) for e in reading.engines]
        if is_part:
            findings += [finding for one in ours for finding in one.findings]
        else:
            judged += ours
        if request.fix and request.files is not None:
            releases = [one.version for one in ours]
            corrected = fixed_file(file, list(zip(reading.engines, releases, strict=True)))
            fixed += [] if corrected is None else [corrected]
    # Rules for alerts and a file of variables, as we write them, hold no engine.
    is_ours = all(own_header(file) is not None for file, _ in found)
    if not judged and not findings and not is_ours:
        findings.append(_nothing_found(request))
    findings += [finding for one in judged for finding in one.findings]
    return _report(request, in_order(findings), judged, fixed=fixed, today=today)


def _judging(
    request: CheckRequest, resolve_model: ModelResolver, calibrations: Calibrations
) -> Judging:
    """Return what every engine is judged by, with all names of the request looked up once."""
    engine = request.engine
    if engine is not None and engine.version is not None:
        parse_version(engine.version)
    if request.from_version is not None:
        _parse_from(request.from_version)
    if request.model is not None:
        resolve_model(request.model)
    if request.hardware is not None:
        resolve_hardware(request.hardware)
    return Judging(
        request=request, resolve_model=remembering(resolve_model), calibrations=calibrations
    )


def _by_rules_alone(judging: Judging) -> Judging:
    """Return how a part is judged: its memory is that of the command which names it."""
    request = msgspec.structs.replace(judging.request, hardware=None)
    return msgspec.structs.replace(judging, request=request, is_by_rules_alone=True)


def _parse_from(text: str) -> None:
    try:
        parse_version(text)
    except UnknownEngineVersion as error:
        raise UnknownEngineVersion(error.message, pointer="/from_version") from None


def _readings(request: CheckRequest, findings: list[Finding]) -> "list[tuple[SourceFile, Reading]]":
    """Return each file with what it holds; unreadable ones become findings."""
    given = [request.files is not None, request.command is not None, request.config is not None]
    if sum(given) != 1:
        raise InvalidRequest("give exactly one of files, command and config", pointer="/files")
    if request.config is not None:
        stated = Reading(engines=(stated_engine(request.config),))
        return [(SourceFile(_CONFIG, ""), stated)]
    files = request.files or [CheckFile(path=_COMMAND, content=request.command or "")]
    is_command = request.command is not None
    read = [_read(given_file, findings, is_command=is_command) for given_file in files]
    return [found for found in read if found is not None]


def _read(
    given: CheckFile, findings: list[Finding], *, is_command: bool
) -> tuple[SourceFile, Reading] | None:
    try:
        file = SourceFile(given.path, given.content)
        reading = (
            read_command(given.content) if is_command else read_file(given.path, given.content)
        )
    except Unreadable as error:
        findings.append(_unreadable(given, error))
        return None
    return file, reading


def _unreadable(given: CheckFile, error: Unreadable) -> Finding:
    place = SourceFile(given.path, given.content[: error.offset].replace("\0", " "))
    return gate_finding(
        "FIL001",
        f"The file cannot be read: {error.reason}.",
        suggestion="Correct it, or leave it out of the check.",
        location=locate(place, Span(error.offset, error.offset)),
    )


def _nothing_found(request: CheckRequest) -> Finding:
    files = [file.path for file in request.files or []]
    named = ", ".join(files[:5]) or "the command"
    return gate_finding(
        "CHK003",
        f"No vLLM server and no LLM(...) was found in {named}.",
        suggestion="Name files that hold vllm serve, a manifest with a vLLM container, vLLM's own"
        " configuration file or a call of LLM(...).",
    )


def _report(
    request: CheckRequest,
    findings: list[Finding],
    judged: Sequence[Judged],
    *,
    fixed: list[CheckFile],
    today: str,
) -> CheckReport:
    policy = request.policy or Policy()
    decided = judge_policy(
        policy,
        findings,
        evidence=[_evidence(one) for one in judged],
        today=today,
        baseline=request.baseline,
    )
    kept = in_order(decided.findings)
    version = judged[0].version if judged else NEWEST
    return CheckReport(
        schema_version=SCHEMA_VERSION,
        verdict=decided.verdict,
        summary=_summary(decided.verdict, kept, judged),
        reasons=list(decided.reasons),
        findings=kept,
        fingerprints=fingerprints(kept),
        waived=list(decided.waived),
        counts=_counts(kept, waived=len(decided.waived)),
        engines=[one.checked for one in judged],
        estimate=_first_estimate(judged),
        fixed_files=fixed,
        provenance=provenance(version),
    )


def _evidence(one: Judged) -> Evidence:
    return Evidence(
        title=one.checked.title,
        version=one.version.text,
        gpus=one.gpus,
        estimate=one.estimate,
        missing=one.missing,
    )


def _first_estimate(judged: Sequence[Judged]) -> Estimate | None:
    return next((one.estimate for one in judged if one.estimate is not None), None)


def _counts(findings: Sequence[Finding], *, waived: int) -> Counts:
    severities = [finding.severity for finding in findings]
    return Counts(
        error=severities.count("error"),
        warning=severities.count("warning"),
        note=severities.count("note"),
        waived=waived,
    )


def _summary(verdict: str, findings: Sequence[Finding], judged: Sequence[Judged]) -> str:
    counts = _counts(findings, waived=0)
    engines = f"{len(judged)} engine{'' if len(judged) == 1 else 's'}"
    return (
        f"{verdict}: {engines} checked, {counts.error} errors, {counts.warning} warnings,"
        f" {counts.note} notes"
    )
