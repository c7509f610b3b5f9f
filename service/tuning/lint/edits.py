"""Changes to a file by position: what is not changed stays as it is, comments included."""

import re
from collections.abc import Iterable

import msgspec

from service.tuning.lint.found import Form, Word
from service.tuning.lint.text import Span

_ITEM_LINE = re.compile(r"[ \t]*-[ \t]+")
_LINE_REST = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NEXT_COMMA = re.compile(r"\s*,[ \t]*\n?")


class Edit(msgspec.Struct, frozen=True, order=True):
    """Text that takes the place of a stretch of the file."""

    start: int
    end: int
    text: str


def apply_edits(content: str, edits: Iterable[Edit]) -> str:
    """Return the content with all edits made; of two that overlap the first one counts."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits):
        if edit.start < at:
            continue
        parts += [content[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, content[at:]])


def is_literal(word: Word, content: str) -> bool:
    """Whether the file holds the argument itself, plain or in quotes."""
    place = word.place
    raw = content[place.start : place.end]
    return word.unresolved is None and raw in {word.value, f"'{word.value}'", f'"{word.value}"'}


def replace_word(word: Word, value: str, content: str) -> Edit:
    """Return the edit that writes another value, in the same quotes."""
    place = word.place
    raw = content[place.start : place.end]
    quote = raw[0] if raw[:1] in {"'", '"'} else ""
    return Edit(place.start, place.end, f"{quote}{value}{quote}")


def remove_words(words: tuple[Word, ...], before: Word, content: str, *, form: Form) -> list[Edit]:
    """Return the edits that take arguments out, with the blanks or lines around them."""
    if form == "items" and all(_is_own_line(word, content) for word in words):
        return [_remove_lines(word.place.start, word.place.end, content) for word in words]
    if form == "items":
        return [_remove_from_brackets(words[0].place.start, words[-1].place.end, content)]
    if form == "yaml":
        return [_remove_lines(words[0].place.start, words[-1].place.end, content)]
    return [Edit(before.place.end, words[-1].place.end, "")]


def remove_keyword(name: Span, value: Span, content: str) -> Edit:
    """Return the edit that takes a keyword argument or an entry of a dictionary out."""
    start, end = name.start, value.end
    comma = _NEXT_COMMA.match(content, end)
    if comma is not None:
        line_start = content.rfind("\n", 0, start) + 1
        is_own_line = not content[line_start:start].strip() and comma.group(0).endswith("\n")
        return Edit(line_start if is_own_line else start, comma.end(), "")
    return Edit(_comma_before(start, content), end, "")


def _is_own_line(word: Word, content: str) -> bool:
    """Whether the argument is an item of a block list, alone on its line."""
    place = word.place
    line_start = content.rfind("\n", 0, place.start) + 1
    is_item = _ITEM_LINE.fullmatch(content, line_start, place.start) is not None
    return is_item and _LINE_REST.match(content, place.end) is not None


def _remove_from_brackets(start: int, end: int, content: str) -> Edit:
    """Return the edit that takes items and one comma out of a list in brackets."""
    comma = _NEXT_COMMA.match(content, end)
    if comma is not None:
        return Edit(start, comma.end(), "")
    return Edit(_comma_before(start, content), end, "")


def _comma_before(start: int, content: str) -> int:
    """Return where the comma before a place begins, with its blanks; the place where none is."""
    at = start
    while at and content[at - 1].isspace():
        at -= 1
    return at - 1 if at and content[at - 1] == "," else start


def _remove_lines(start: int, end: int, content: str) -> Edit:
    line_start = content.rfind("\n", 0, start) + 1
    rest = content.find("\n", end)
    return Edit(line_start, len(content) if rest < 0 else rest + 1, "")
