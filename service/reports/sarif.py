"""SARIF 2.1.0, for code scanning and editors.

GitHub keeps at most 5,000 results of a run and 20 tags of a rule; paths must be relative and
fingerprints stable (docs.github.com, SARIF support for code scanning).
"""

import json
from typing import Any
from urllib.parse import quote

from api_schemas.check import CheckReport
from api_schemas.explanation import Finding, Location
from service.reports.rule_pages import RULES_PAGE, rule_help, rule_title
from service.tuning.rules.registry import find_rule

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_RESULTS = 5000
Json = dict[str, Any]


def render_sarif(report: CheckReport) -> str:
    """Return one run with a result for each finding, waived ones suppressed."""
    waived = [(item.finding, item) for item in report.waived]
    findings = [*report.findings, *(finding for finding, _ in waived)]
    ids = sorted({finding.rule for finding in findings})
    results = [
        _result(finding, ids, fingerprint)
        for finding, fingerprint in zip(report.findings, report.fingerprints, strict=True)
    ]
    for finding, item in waived:
        suppression = {"kind": "external", "justification": f"{item.reason} (until {item.until})"}
        results.append({**_result(finding, ids, None), "suppressions": [suppression]})
    driver = {
        "name": "Setpoint",
        "informationUri": "https://github.com/setpoint/setpoint",
        "semanticVersion": report.provenance.setpoint_version,
        "rules": [_rule(rule_id) for rule_id in ids],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results[:_MOST_RESULTS],
        "invocations": [{"executionSuccessful": True}],
        "properties": {"verdict": report.verdict, "summary": report.summary},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule_id: str) -> Json:
    rule = find_rule(rule_id)
    severity = "warning" if rule is None else rule.severity
    return {
        "id": rule_id,
        "shortDescription": {"text": rule_title(rule_id)},
        "fullDescription": {"text": rule_help(rule_id) or rule_title(rule_id)},
        "helpUri": RULES_PAGE,
        "defaultConfiguration": {"level": severity},
    }


def _result(finding: Finding, ids: list[str], fingerprint: str | None) -> Json:
    text = finding.message
    if finding.suggestion:
        text += f" Suggestion: {finding.suggestion}"
    result: Json = {
        "ruleId": finding.rule,
        "ruleIndex": ids.index(finding.rule),
        "level": finding.severity,
        "message": {"text": text},
    }
    if finding.location is not None:
        result["locations"] = [_location(finding.location)]
    if fingerprint is not None:
        result["partialFingerprints"] = {"setpoint/v1": fingerprint}
    return result


def _location(location: Location) -> Json:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(location.file.replace("\\", "/").removeprefix("./"))},
            "region": {"startLine": location.line, "startColumn": location.column},
        }
    }
