"""Files of lines: environment files, systemd units, Markdown with code in fences."""

import re
from collections.abc import Callable, Iterator

from service.tuning.lint.found import FoundEngine, Reading, Variable
from service.tuning.lint.limits import MAX_LINES, Unreadable
from service.tuning.lint.nested import read_nested
from service.tuning.lint.shell import read_shell
from service.tuning.lint.shell_words import Splitter
from service.tuning.lint.text import SourceFile, Span, Text

_VARIABLE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=(.*)$", re.MULTILINE)
_EXEC = re.compile(r"^ExecStart[ \t]*=[ \t]*[-@:+!]*", re.MULTILINE)
_UNIT_ENV = re.compile(r"^Environment[ \t]*=[ \t]*(.*)$", re.MULTILINE)
_FENCE = re.compile(r"[ \t]*(?P<mark>```+|~~~+)[ \t]*(?P<language>[\w+-]*)[^\n]*")
_SHELL_FENCES = frozenset({"", "bash", "sh", "shell", "console", "zsh", "shell-session"})
_SPECIFIER = re.compile(r"%[a-zA-Z]")


def read_env_file(file: SourceFile) -> Reading:
    """Return the variables of an environment file, without an engine's settings."""
    if file.content.count("\n") > MAX_LINES:
        raise Unreadable(f"it has more than {MAX_LINES:,} lines")
    found = [
        Variable(match.group(1), _unquoted(match.group(2)), Span(match.start(1), match.end(2)))
        for match in _VARIABLE.finditer(file.content)
    ]
    if not any(variable.name.startswith(("VLLM_", "PYTORCH_", "NCCL_")) for variable in found):
        return Reading()
    engine = FoundEngine(title="environment file", form="env", span=found[0].span, env=tuple(found))
    return Reading(engines=(engine,))


def read_systemd(file: SourceFile) -> Reading:
    """Return the engines that a unit starts, with its Environment lines."""
    if file.content.count("\n") > MAX_LINES:
        raise Unreadable(f"it has more than {MAX_LINES:,} lines")
    env = tuple(_unit_variables(file))
    engines: list[FoundEngine] = []
    for match in _EXEC.finditer(file.content):
        text = Text.at(file.content, 0).cut(match.end(), _end_of_entry(file.content, match.end()))
        engines += read_shell(_with_specifiers_open(text), env=env).engines
    return Reading(engines=tuple(engines))


def read_markdown(file: SourceFile, read_block: Callable[[SourceFile], Reading]) -> Reading:
    """Return the engines in fenced code: commands, manifests, scripts.

    `read_block` reads a block by the name it is given: block.yaml, block.py.
    """
    readings: list[Reading] = []
    for language, start, end in _fences(file.content):
        body = Text.at(file.content, 0).cut(start, end)
        if language in _SHELL_FENCES:
            readings.append(_block(body, "block.sh", lambda block: read_shell(block.text)))
        elif language in {"yaml", "yml", "python", "py", "json"}:
            suffix = {"yml": "yaml", "python": "py"}.get(language, language)
            readings.append(_block(_dedented(body), f"block.{suffix}", read_block))
    return Reading(
        engines=tuple(engine for reading in readings for engine in reading.engines),
        remarks=tuple(remark for reading in readings for remark in reading.remarks),
    )


def _fences(content: str) -> Iterator[tuple[str, int, int]]:
    """Yield language, beginning and end of each fenced block; an unclosed one ends the search."""
    mark, language, start, at = "", "", 0, 0
    for line in content.split("\n"):
        match = _FENCE.fullmatch(line.rstrip("\r"))
        if match is not None and not mark:
            mark, language = match.group("mark"), match.group("language").lower()
            start = at + len(line) + 1
        elif mark and line.strip() == mark:
            yield language, start, at
            mark = ""
        at += len(line) + 1


def _block(text: Text, name: str, read: Callable[[SourceFile], Reading]) -> Reading:
    """Return what a block of code holds; fragments that are no whole file are passed over."""
    try:
        return read_nested(text, name, read)
    except Unreadable:
        return Reading()


def _dedented(text: Text) -> Text:
    """Return indented code without its common indentation, places kept."""
    lines = text.value.split("\n")
    widths = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    width = min(widths, default=0)
    kept: list[int] = []
    start = 0
    for line in lines:
        skipped = min(width, len(line) - len(line.lstrip(" ")))
        kept += range(start + skipped, min(start + len(line) + 1, len(text.value)))
        start += len(line) + 1
    return Text("".join(text.value[i] for i in kept), [text.offsets[i] for i in kept])


def _unquoted(value: str) -> str:
    stripped = value.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\"":
        return stripped[1:-1]
    return stripped


def _end_of_entry(content: str, start: int) -> int:
    """Return the end of the line, following continuations."""
    end = content.find("\n", start)
    while end > 0 and content[end - 1] == "\\":
        end = content.find("\n", end + 1)
    return len(content) if end < 0 else end


def _unit_variables(file: SourceFile) -> Iterator[Variable]:
    for match in _UNIT_ENV.finditer(file.content):
        text = Text.at(file.content, 0).cut(match.start(1), match.end(1))
        for words in Splitter(text, {}).commands():
            for word in words:
                name, equals, value = word.value.partition("=")
                if equals:
                    yield Variable(name, None if word.unresolved else value, word.place)


def _with_specifiers_open(text: Text) -> Text:
    """Return the command with systemd's %i and its like as variables that nobody sets."""
    if _SPECIFIER.search(text.value) is None:
        return text
    parts: list[str] = []
    offsets: list[int] = []
    at = 0
    for match in _SPECIFIER.finditer(text.value):
        parts += [text.value[at : match.start()], f"${{systemd_{match.group(0)[1]}}}"]
        offsets += text.offsets[at : match.start()]
        offsets += [text.offsets[match.start()]] * len(parts[-1])
        at = match.end()
    parts.append(text.value[at:])
    offsets += text.offsets[at:]
    return Text("".join(parts), offsets)
