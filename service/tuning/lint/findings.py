"""Findings with their places: mistakes of the grammar, remarks of readers, results of rules."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from api_schemas.explanation import Finding, Location, Severity
from service.tuning.engine.argv_report import ArgvProblem, ProblemCode
from service.tuning.engine.facts import setting_history
from service.tuning.engine.versions import EngineVersion
from service.tuning.lint.found import Remark
from service.tuning.lint.interpret import Interpreted, PlacedProblem
from service.tuning.lint.text import SourceFile, Span
from service.tuning.rules.registry import find_rule

_RULES: dict[ProblemCode, str] = {
    "unknown-setting": "CLI001",
    "boolean-takes-no-value": "CLI002",
    "missing-value": "CLI003",
    "bad-value": "CLI004",
    "bad-choice": "CLI005",
    "ambiguous": "CLI006",
    "abbreviated": "CLI007",
    "duplicate": "CLI008",
    "unexpected-argument": "CLI009",
    "no-model": "CLI010",
}
_SAME_CAUSE: frozenset[ProblemCode] = frozenset({"bad-choice", "bad-value"})
"""Mistakes that a rule of the setting explains better, where it has something to say."""
_VALUE_RULES = frozenset({"QNT009", "QNT010"})
"""Rules that judge a value even where they only make a note of it."""
_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


def problem_findings(
    problems: Iterable[PlacedProblem],
    *,
    by_rules: Sequence[Finding],
    version: EngineVersion,
    file: SourceFile,
) -> Iterator[Finding]:
    """Yield what the grammar refuses, unless a rule already says so: one finding per cause."""
    said = {f.setting for f in by_rules if f.severity != "note" or f.rule in _VALUE_RULES}
    for placed in problems:
        problem = placed.problem
        if placed.rule is None and problem.code in _SAME_CAUSE and problem.setting in said:
            continue
        rule_id = placed.rule or _rule_id(problem, version)
        if problem.code == "not-in-version" and _is_said(problem, rule_id, by_rules):
            continue
        yield _finding(
            rule_id,
            problem.message,
            location=locate(file, placed.span),
            setting=problem.setting,
            suggestion=problem.suggestion,
            severity="warning"
            if problem.code == "boolean-takes-no-value" and not problem.is_refused
            else None,
        )


def remark_finding(remark: Remark, file: SourceFile) -> Finding:
    """Return a reader's remark as a finding of its rule."""
    return _finding(
        remark.rule,
        remark.message,
        location=locate(file, remark.span),
        setting=remark.setting,
        suggestion=remark.suggestion,
    )


def placed(
    findings: Iterable[Finding], read: Interpreted, *, file: SourceFile, otherwise: Span
) -> list[Finding]:
    """Return findings of rules with the place of the setting that they are about."""
    found = []
    for finding in findings:
        span = read.places.get(finding.setting or "", otherwise)
        found.append(msgspec.structs.replace(finding, location=locate(file, span)))
    return found


def locate(file: SourceFile, span: Span) -> Location:
    """Return the place of a span's beginning."""
    line, column = file.line_and_column(span.start)
    return Location(file=file.path, line=line, column=column)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings without repetitions: errors first, then by file and place."""
    unique = {_identity(finding): finding for finding in reversed(list(findings))}
    return sorted(unique.values(), key=_order)


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Return for each finding a mark that stays when lines move: rule, file, setting, count."""
    seen: dict[tuple[str, str, str], int] = {}
    marks = []
    for finding in findings:
        path = finding.location.file if finding.location is not None else ""
        key = (finding.rule, path, finding.setting or "")
        seen[key] = seen.get(key, 0) + 1
        text = "\0".join((*key, str(seen[key])))
        marks.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return marks


def gate_finding(
    rule_id: str,
    message: str,
    *,
    suggestion: str | None = None,
    setting: str | None = None,
    location: Location | None = None,
) -> Finding:
    """Return a finding of one of the gate's own rules."""
    return _finding(rule_id, message, location=location, setting=setting, suggestion=suggestion)


def _is_said(problem: ArgvProblem, rule_id: str, by_rules: Sequence[Finding]) -> bool:
    return any(
        finding.setting == problem.setting and finding.severity == "error" for finding in by_rules
    ) or any(f.setting == problem.setting and f.rule == rule_id for f in by_rules)


def _rule_id(problem: ArgvProblem, version: EngineVersion) -> str:
    if problem.code != "not-in-version":
        return _RULES[problem.code]
    history = setting_history(problem.setting or "")
    introduced = history.introduced if history is not None else None
    return "VER002" if introduced is not None and not version.since(introduced) else "VER001"


def _finding(
    rule_id: str,
    message: str,
    *,
    location: Location | None,
    setting: str | None = None,
    suggestion: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    rule = find_rule(rule_id)
    if rule is None:
        raise LookupError(rule_id)
    return Finding(
        rule=rule_id,
        severity=severity or rule.severity,
        message=message,
        setting=setting,
        suggestion=suggestion,
        source=list(rule.source),
        location=location,
    )


def _identity(finding: Finding) -> tuple[object, ...]:
    place = finding.location
    where = (place.file, place.line, place.column) if place is not None else ()
    return (finding.rule, finding.setting, finding.message, *where)


def _order(finding: Finding) -> tuple[object, ...]:
    place = finding.location
    where = (place.file, place.line, place.column) if place is not None else ("", 0, 0)
    return (_RANK[finding.severity], *where, finding.rule, finding.message)
