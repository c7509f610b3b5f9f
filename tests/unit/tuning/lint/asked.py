"""Short ways to ask the gate in tests."""

from api_schemas.base import Json
from api_schemas.check import CheckFile, CheckReport, CheckRequest
from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding
from service.tuning.check import check
from service.tuning.engine.versions import NEWEST
from service.tuning.lint.found import FoundEngine
from service.tuning.lint.interpret import interpret
from service.tuning.lint.reading import read_command, read_file

TODAY = "2026-06-15"


def checked(path: str, content: str, **changes: Json) -> CheckReport:
    """Return the report on one file."""
    return check(
        CheckRequest(files=[CheckFile(path=path, content=content)], **changes), today=TODAY
    )


def checked_command(command: str, **changes: Json) -> CheckReport:
    """Return the report on one command."""
    return check(CheckRequest(command=command, **changes), today=TODAY)


def found(report: CheckReport, rule: str) -> list[Finding]:
    """Return the findings of one rule."""
    return [finding for finding in report.findings if finding.rule == rule]


def engines(content: str, path: str = "command") -> tuple[FoundEngine, ...]:
    """Return what a reader finds in a file, or in a command when no path is given."""
    reading = read_command(content) if path == "command" else read_file(path, content)
    return reading.engines


def argv(engine: FoundEngine) -> list[str]:
    """Return the arguments of an engine."""
    return [word.value for word in engine.words]


def config_of(engine: FoundEngine) -> EngineConfig:
    """Return the settings as the newest release reads them."""
    return interpret(engine, NEWEST).config
