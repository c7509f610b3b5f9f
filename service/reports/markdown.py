"""Markdown, for step summaries and merge requests; bounded in size."""

import re

from api_schemas.check import CheckedEngine, CheckReport
from api_schemas.explanation import Finding

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔"}
_MOST_ROWS = 100
_LONGEST_CELL = 500
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#])")


def render_markdown(report: CheckReport) -> str:
    """Return verdict, engines and findings as tables."""
    lines = [f"## {_MARKS[report.verdict]} Setpoint: {report.verdict}", "", report.summary, ""]
    if report.verdict == "inconclusive":
        lines += [*(f"- {_cell(reason)}" for reason in report.reasons[:_MOST_ROWS]), ""]
    if report.findings:
        lines += ["| | where | rule | finding | suggestion |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(finding) for finding in report.findings[:_MOST_ROWS]]
        left = len(report.findings) - _MOST_ROWS
        lines += ["", *([f"{left} more findings are left out here.", ""] if left > 0 else [])]
    if report.waived:
        lines += ["Waived:", ""]
        lines += [
            f"- {item.finding.rule} until {item.until}: {_cell(item.reason)}"
            for item in report.waived[:_MOST_ROWS]
        ]
        lines.append("")
    lines += _engines(report.engines)
    return "\n".join(lines).rstrip() + "\n"


def _engines(engines: list[CheckedEngine]) -> list[str]:
    if not engines:
        return []
    lines = [
        "| engine | model | vLLM | fits | KV cache tokens |",
        "| --- | --- | --- | --- | --- |",
    ]
    for engine in engines[:_MOST_ROWS]:
        fits = {None: "not judged", True: "yes", False: "no"}[engine.fits]
        tokens = engine.figures.get("kv_cache_tokens")
        shown = "" if tokens is None else f"{tokens:,.0f}"
        lines.append(
            f"| {_cell(engine.title)} | {_cell(engine.model or '')} | {engine.version} | {fits}"
            f" | {shown} |"
        )
    return lines


def _row(finding: Finding) -> str:
    place = finding.location
    where = "" if place is None else f"{place.file}:{place.line}"
    cells = (finding.severity, where, finding.rule, finding.message, finding.suggestion or "")
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    short = flat if len(flat) <= _LONGEST_CELL else flat[: _LONGEST_CELL - 1] + "…"
    return _SPECIAL.sub(r"\\\1", short)
