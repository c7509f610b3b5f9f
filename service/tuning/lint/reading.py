"""Any file: chooses the reader by name and content."""

import re
from collections.abc import Callable

from service.tuning.lint.budget import within_budget
from service.tuning.lint.found import Reading
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.line_files import read_env_file, read_markdown, read_systemd
from service.tuning.lint.manifests import read_manifests
from service.tuning.lint.python_calls import read_python
from service.tuning.lint.shell import read_shell
from service.tuning.lint.text import SourceFile

_YAML = re.compile(r"\.(ya?ml|json)(\.(tmpl|tpl|gotmpl|j2|template))?$|\.tpl$")
_ENV = re.compile(r"(^|[./])env$|\.env(\.\w+)?$")
_UNIT = re.compile(r"^\[(Unit|Service|Container|Install)\]", re.MULTILINE)
_LOOKS_LIKE_YAML = re.compile(
    r"\A(?:[ \t]*(?:#.*)?\n)*(?:---|apiVersion:|kind:|services:|[\w-]+:\s)"
)
_LOOKS_LIKE_PYTHON = re.compile(r"^(?:import|from)\s+\w", re.MULTILINE)


def read_file(path: str, content: str) -> Reading:
    """Return the engines in one file.

    Raises:
        Unreadable: it is malformed or goes beyond the limits.
    """
    file = SourceFile(path, content)
    try:
        return within_budget(_read(file))
    except RecursionError:
        raise Unreadable("it is nested too deep") from None


def read_command(command: str) -> Reading:
    """Return the engines that a command starts; raises Unreadable beyond the limits."""
    return within_budget(read_shell(SourceFile("command", command).text))


def _read(file: SourceFile) -> Reading:
    for named, read in _BY_NAME:
        if named.search(file.path.lower()):
            return read(file)
    return _read_unnamed(file) if file.path == "-" else read_shell(file.text)


def _read_unit(file: SourceFile) -> Reading:
    return read_systemd(file) if _UNIT.search(file.content) else read_shell(file.text)


def _read_manifests(file: SourceFile) -> Reading:
    return read_manifests(file, read_block=_read)


def _read_unnamed(file: SourceFile) -> Reading:
    """Read standard input by what it looks like."""
    if _UNIT.search(file.content):
        return read_systemd(file)
    if _LOOKS_LIKE_YAML.match(file.content):
        return _read_manifests(file)
    if _LOOKS_LIKE_PYTHON.search(file.content):
        return read_python(file)
    return read_shell(file.text)


_BY_NAME: tuple[tuple[re.Pattern[str], Callable[[SourceFile], Reading]], ...] = (
    (_YAML, _read_manifests),
    (re.compile(r"\.pyi?$"), read_python),
    (re.compile(r"\.(md|markdown)$"), lambda file: read_markdown(file, _read)),
    (_ENV, read_env_file),
    (re.compile(r"\.(service|container)$"), _read_unit),
)
