"""Suggestions in the words of the file: flags on a command line, keys in vLLM's own file."""

import re

import msgspec

from api_schemas.explanation import Finding
from service.tuning.engine.grammar import grammar
from service.tuning.lint.found import Form
from service.tuning.lint.repairs import is_left_out, new_name

_GONE = frozenset({"VER001", "VER003", "OFF001"})
_SET = re.compile(
    r"\b(?:[Ss]et|[Rr]aise|[Ll]ower) (?P<name>[a-z][a-z0-9_]+) to (?P<value>[\d.]+\d|\d)"
)


def pasteable(finding: Finding, *, form: Form) -> Finding:
    """Return the finding with a suggestion that can be pasted where the file's form allows one."""
    setting = finding.setting or ""
    rest = f" {finding.suggestion}" if finding.suggestion else ""
    renamed = new_name(setting)
    if finding.rule in _GONE and renamed is not None:
        return _with(finding, f"Write {_written(renamed, form)}.{rest}")
    if finding.rule in _GONE and setting in grammar() and is_left_out(setting):
        return _with(finding, f"Remove {_written(grammar()[setting].flag, form)}.{rest}")
    match = _SET.search(finding.suggestion or "")
    if match is None or match.group("name") not in grammar():
        return finding
    flag, value = grammar()[match.group("name")].flag, match.group("value")
    words = {"yaml": f"{flag[2:]}: {value}", "python": f"{match.group('name')}={value}"}
    here = words.get(form, f"{flag} {value}")
    return _with(finding, f"{finding.suggestion} In this file: {here}")


def _with(finding: Finding, suggestion: str) -> Finding:
    return msgspec.structs.replace(finding, suggestion=suggestion)


def _written(flag: str, form: Form) -> str:
    if form == "yaml":
        return f"{flag[2:]}: true" if flag.startswith("--no-") else flag[2:]
    return flag[2:].replace("-", "_") if form == "python" else flag
