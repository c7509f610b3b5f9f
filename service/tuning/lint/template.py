"""Templates: what a renderer would fill in is masked, so that the rest of the file can be read."""

import re
from collections.abc import Iterator

from service.tuning.lint.text import Text

MASK = "\ue000"
"""A character that no configuration holds; it stands where a template's expression stands."""
_MARKS = {"{{": "}}", "{%": "%}"}
_DIRECTIVE = re.compile(
    r"\{\{-?\s*(?:if|else|end|range|with|define|block)\b|\{%-?\s*(?:if|else|elif|for|set|macro)\b"
)
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w .|/-]{0,60}>|\$\{\{?[^{}]{0,120}\}?\}|__[A-Z][A-Z0-9_]*__")


def directive_at(content: str) -> int | None:
    """Return where a template first branches or repeats; None where it only fills in values."""
    match = _DIRECTIVE.search(content)
    return None if match is None else match.start()


def masked(content: str) -> str:
    """Return the content with each expression replaced by a mask of the same length.

    Line breaks stay, so that every line and column is what it was.
    """
    if "{{" not in content and "{%" not in content:
        return content
    parts: list[str] = []
    at = 0
    for start, end in expressions(content):
        parts += [content[at:start], re.sub(r"[^\n]", MASK, content[start:end])]
        at = end
    return "".join([*parts, content[at:]])


def expressions(content: str) -> Iterator[tuple[int, int]]:
    """Yield where each template expression begins and ends; unclosed ones are none."""
    at = 0
    for match in re.finditer(r"\{[{%]", content):
        if match.start() < at:
            continue
        closer = _MARKS[match.group(0)]
        end = content.find(closer, match.end())
        if end < 0:
            return
        at = end + len(closer)
        yield match.start(), at


def open_part(text: Text, content: str) -> str | None:
    """Return the expression or placeholder in a value; None when all of it is known."""
    if MASK in text.value:
        start = text.offsets[text.value.index(MASK)]
        end = content.find("}", start) + 2
        return content[start : max(end, start + 2)][:80]
    match = _PLACEHOLDER.search(text.value)
    return match.group(0)[:80] if match is not None else None
