"""GitHub workflow commands: annotations on the lines of a pull request."""

from api_schemas.check import CheckReport
from api_schemas.explanation import Finding

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


def render_github(report: CheckReport) -> str:
    """Return one workflow command for each finding, then the summary."""
    lines = [_command(finding) for finding in report.findings]
    return "\n".join([*lines, report.summary]) + "\n"


def _command(finding: Finding) -> str:
    properties = [f"title={_property(finding.rule)}"]
    if finding.location is not None:
        place = finding.location
        properties = [
            f"file={_property(place.file)}",
            f"line={place.line}",
            f"col={place.column}",
            *properties,
        ]
    text = finding.message + (f"\nSuggestion: {finding.suggestion}" if finding.suggestion else "")
    return f"::{_LEVELS[finding.severity]} {','.join(properties)}::{_data(text)}"


def _data(text: str) -> str:
    """Return text as the runner decodes it: percent signs and line ends escaped."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
