"""The policy: which findings fail, which are waived, and which evidence is missing."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import msgspec

from api_schemas.check import Baseline, Policy, Verdict, WaivedFinding, Waiver
from api_schemas.estimate import Estimate
from api_schemas.explanation import Confidence, Finding
from api_schemas.measurement import CalibratedBy
from service.tuning.baseline import worse_than
from service.tuning.days import day_number, day_number_of_id
from service.tuning.lint.findings import fingerprints, gate_finding, in_order

_CONFIDENCE: dict[Confidence, int] = {"low": 0, "medium": 1, "high": 2}
_FROM_MEASUREMENTS = frozenset({"measured", "calibrated"})
_UNSURE = frozenset({"CAP004", "CAP011", "CAP012", "VER007"})
"""Findings that say that the figures themselves are rough."""
_INCONCLUSIVE_RULES = {
    "CHK003": "no engine was found",
    "TPL002": "a file is a template that must be rendered first",
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one engine."""

    title: str
    version: str
    gpus: int | None
    estimate: Estimate | None
    missing: tuple[str, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict with its reasons; findings without the waived ones."""

    verdict: Verdict
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...]
    waived: tuple[WaivedFinding, ...]


def judge_policy(
    policy: Policy,
    findings: Sequence[Finding],
    *,
    evidence: Sequence[Evidence],
    today: str,
    baseline: Baseline | None = None,
) -> Decision:
    """Return the verdict on all findings and evidence; `today` is a day as YYYY-MM-DD.

    With a baseline, findings that it already had do not fail; figures that became worse do.
    """
    ended = [_ended(waiver) for waiver in policy.waivers if waiver.until < today]
    standing = [waiver for waiver in policy.waivers if waiver.until >= today]
    kept: list[Finding] = [*ended]
    waived: list[WaivedFinding] = []
    for finding in (*findings, *_ceilings(policy, evidence), *_worse(baseline, evidence)):
        waiver = next((w for w in standing if _covers(w, finding)), None)
        if waiver is None:
            kept.append(finding)
        else:
            waived.append(_waived(finding, waiver))
    new = _new_findings(in_order(kept), baseline)
    failing = [finding for finding in new if _fails(finding, policy)]
    gaps = [*_gaps(policy, kept, evidence, today=today)]
    verdict: Verdict = "fail" if failing else "inconclusive" if gaps else "pass"
    reasons = [f"{finding.rule}: {finding.message}" for finding in failing] or gaps
    return Decision(
        verdict=verdict, reasons=tuple(reasons), findings=tuple(kept), waived=tuple(waived)
    )


def confidence_of(estimate: Estimate) -> Confidence:
    """Return how sure an estimate is: learned from measurements, modelled, or with reservations."""
    if estimate.basis in _FROM_MEASUREMENTS:
        return "high"
    return "low" if any(f.rule in _UNSURE for f in estimate.findings) else "medium"


def _worse(baseline: Baseline | None, evidence: Sequence[Evidence]) -> Iterator[Finding]:
    if baseline is None:
        return
    for one in evidence:
        yield from worse_than(baseline, title=one.title, estimate=one.estimate)


def _new_findings(findings: list[Finding], baseline: Baseline | None) -> list[Finding]:
    """Return the findings that the baseline did not have."""
    known = frozenset(baseline.fingerprints) if baseline is not None else frozenset()
    marked = zip(findings, fingerprints(findings), strict=True)
    return [finding for finding, mark in marked if mark not in known]


def _fails(finding: Finding, policy: Policy) -> bool:
    return finding.severity == "error" or (
        policy.fail_on == "warning" and finding.severity == "warning"
    )


def _covers(waiver: Waiver, finding: Finding) -> bool:
    if waiver.rule != finding.rule:
        return False
    if waiver.path is None:
        return True
    return finding.location is not None and fnmatchcase(finding.location.file, waiver.path)


def _waived(finding: Finding, waiver: Waiver) -> WaivedFinding:
    return WaivedFinding(
        finding=finding, until=waiver.until, reason=waiver.reason, owner=waiver.owner
    )


def _ended(waiver: Waiver) -> Finding:
    owner = f" {waiver.owner} answers for it." if waiver.owner else ""
    return gate_finding(
        "POL001",
        f"The waiver of {waiver.rule} ended on {waiver.until} ({waiver.reason}).{owner}",
        suggestion="Settle the finding, or renew the waiver with a new day.",
        setting=waiver.rule,
    )


def _ceilings(policy: Policy, evidence: Sequence[Evidence]) -> Iterator[Finding]:
    for one in evidence:
        if policy.max_gpus is not None and one.gpus is not None and one.gpus > policy.max_gpus:
            yield gate_finding(
                "POL002",
                f"{one.title} takes {one.gpus} GPUs, the policy allows {policy.max_gpus}.",
                suggestion="Lower the parallel sizes.",
                setting="tensor_parallel_size",
            )
        allowed = policy.allowed_engine_versions
        if allowed is not None and one.version not in {text.removeprefix("v") for text in allowed}:
            yield gate_finding(
                "POL002",
                f"{one.title} runs vLLM {one.version}, the policy allows {', '.join(allowed)}.",
                suggestion=f"Pin {allowed[-1]}.",
            )


def _gaps(
    policy: Policy, findings: Sequence[Finding], evidence: Sequence[Evidence], *, today: str
) -> Iterator[str]:
    """Yield which evidence is missing for a verdict."""
    for rule, reason in _INCONCLUSIVE_RULES.items():
        if any(finding.rule == rule for finding in findings):
            yield reason
    for one in evidence:
        for missing in one.missing:
            yield f"{one.title}: {missing}"
        if one.estimate is not None and any(o.verdict == "uncertain" for o in one.estimate.slo):
            yield f"{one.title}: a target lies inside the band of its prediction"
        yield from _unmeasured(policy, one, today=today)
        yield from _unsure(policy, one)


def _unmeasured(policy: Policy, one: Evidence, *, today: str) -> Iterator[str]:
    days = policy.require_measured_within_days
    if days is None:
        return
    newest = None if one.estimate is None else measured_on(one.estimate)
    if newest is None:
        yield f"{one.title}: no measurement of this configuration is known"
    elif (age := day_number(today) - newest) > days:
        yield f"{one.title}: it was measured last {age} days ago, the policy allows {days}"


def measured_on(estimate: Estimate) -> int | None:
    """Return the day (counted from 1970) of the newest measurement behind an estimate."""
    basis = estimate.provenance.calibration
    if estimate.basis not in _FROM_MEASUREMENTS or not isinstance(basis, CalibratedBy):
        return None
    return max((day_number_of_id(name) for name in basis.measurement_ids), default=None)


def _unsure(policy: Policy, one: Evidence) -> Iterator[str]:
    least = policy.min_confidence
    if least is None:
        return
    known = "low" if one.estimate is None else confidence_of(one.estimate)
    if _CONFIDENCE[known] < _CONFIDENCE[least]:
        yield f"{one.title}: confidence is {known}, the policy asks for {least}"
