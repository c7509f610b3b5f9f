"""Corrected files: repairs made, read again, and kept only where they help."""

from api_schemas.check import CheckFile
from service.tuning.engine.versions import EngineVersion
from service.tuning.lint.edits import apply_edits
from service.tuning.lint.found import FoundEngine
from service.tuning.lint.interpret import interpret
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.reading import read_file
from service.tuning.lint.repairs import repairs
from service.tuning.lint.text import SourceFile

Versioned = tuple[FoundEngine, EngineVersion]


def fixed_file(file: SourceFile, engines: list[Versioned]) -> CheckFile | None:
    """Return the file with its safe corrections; None where there are none.

    A corrected file must still hold as many engines, with no more refusals than before.
    """
    edits = [edit for engine, version in engines for edit in repairs(engine, file.content, version)]
    content = apply_edits(file.content, edits)
    if content == file.content or not _is_better(file, content, engines):
        return None
    return CheckFile(path=file.path, content=content)


def _is_better(file: SourceFile, content: str, engines: list[Versioned]) -> bool:
    try:
        after = read_file(file.path, content).engines
    except Unreadable:
        return False
    if len(after) != len(engines):
        return False
    pairs = zip(engines, after, strict=True)
    return all(_refusals(new, version) <= _refusals(old, version) for (old, version), new in pairs)


def _refusals(engine: FoundEngine, version: EngineVersion) -> int:
    return sum(p.problem.is_refused for p in interpret(engine, version).problems)
