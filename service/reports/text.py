"""Text for people at a terminal, with or without colours."""

from api_schemas.check import CheckReport
from api_schemas.explanation import Finding

_COLOURS = {
    "error": "\x1b[1;31m",
    "fail": "\x1b[1;31m",
    "warning": "\x1b[33m",
    "inconclusive": "\x1b[33m",
    "note": "\x1b[2m",
    "pass": "\x1b[32m",
}
_RESET = "\x1b[0m"


def render_text(report: CheckReport) -> str:
    """Return findings by place, then the verdict, without colours."""
    return _render(report, {})


def render_coloured_text(report: CheckReport) -> str:
    """Return the same for a terminal that shows colours."""
    return _render(report, _COLOURS)


def _render(report: CheckReport, colours: dict[str, str]) -> str:
    lines: list[str] = []
    for finding in report.findings:
        lines += _lines(finding, colours)
    for item in report.waived:
        owner = f", {item.owner}" if item.owner else ""
        lines.append(f"waived {item.finding.rule} until {item.until}: {item.reason}{owner}")
    for engine in report.engines:
        fits = {None: "memory not judged", True: "fits", False: "does not fit"}[engine.fits]
        shown = engine.model or "model not known"
        lines.append(_printable(f"{engine.title}: {shown}, vLLM {engine.version}, {fits}"))
    if report.verdict == "inconclusive":
        lines += [_printable(f"evidence missing: {reason}") for reason in report.reasons]
    lines.append(_painted(report.summary, report.verdict, colours))
    return "\n".join(lines) + "\n"


def _lines(finding: Finding, colours: dict[str, str]) -> list[str]:
    place = finding.location
    where = "" if place is None else f"{place.file}:{place.line}:{place.column}: "
    severity = _painted(finding.severity, finding.severity, colours)
    lines = [f"{_printable(where)}{severity} {finding.rule}: {_printable(finding.message)}"]
    if finding.suggestion:
        lines.append(f"    {_printable(finding.suggestion)}")
    return lines


def _painted(text: str, key: str, colours: dict[str, str]) -> str:
    return f"{colours[key]}{text}{_RESET}" if key in colours else text


def _printable(text: str) -> str:
    """Return text that cannot steer a terminal: a file's own escape sequences are shown."""
    return "".join(c if c.isprintable() else "?" for c in text.replace("\n", " "))
