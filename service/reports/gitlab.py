"""GitLab code quality: issues in the merge request widget."""

import json

from api_schemas.check import CheckReport

_SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}


def render_gitlab(report: CheckReport) -> str:
    """Return the list of issues that GitLab's code-quality report takes."""
    issues = []
    for finding, fingerprint in zip(report.findings, report.fingerprints, strict=True):
        place = finding.location
        text = finding.message + (f" {finding.suggestion}" if finding.suggestion else "")
        issues.append(
            {
                "description": text,
                "check_name": finding.rule,
                "fingerprint": fingerprint,
                "severity": _SEVERITIES[finding.severity],
                "location": {
                    "path": place.file.removeprefix("./") if place is not None else "setpoint",
                    "lines": {"begin": place.line if place is not None else 1},
                },
            }
        )
    return json.dumps(issues, indent=2) + "\n"
