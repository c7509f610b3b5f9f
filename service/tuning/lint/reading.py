"""Any file: chooses the reader by name and content."""

import re

from service.tuning.lint.found import Reading
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.manifests import read_manifests
from service.tuning.lint.shell import read_shell
from service.tuning.lint.text import SourceFile

_YAML = re.compile(r"\.(ya?ml|json)(\.(tmpl|tpl|gotmpl|j2|template))?$|\.tpl$")


def read_file(path: str, content: str) -> Reading:
    """Return the engines in one file.

    Raises:
        Unreadable: it is malformed or goes beyond the limits.
    """
    file = SourceFile(path, content)
    try:
        return _read(file)
    except RecursionError:
        raise Unreadable("it is nested too deep") from None


def read_command(command: str) -> Reading:
    """Return the engines that a command starts; raises Unreadable beyond the limits."""
    return read_shell(SourceFile("command", command).text)


def _read(file: SourceFile) -> Reading:
    if _YAML.search(file.path.lower()):
        return read_manifests(file)
    return read_shell(file.text)
