"""Where each character of a YAML value stands in the file."""

import re

from service.tuning.lint.text import Text

_ESCAPE = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r?\n[ \t]*|.)", re.DOTALL
)


def scalar_text(value: str, *, raw: str, start: int, style: str | None) -> Text:
    """Return a scalar's text with the place of each character.

    `raw` is what the file holds, quotes and block indicators included.
    """
    if raw == value:
        return Text.at(value, start)
    if style in {"'", '"'} and raw[1:-1] == value:
        return Text.at(value, start + 1)
    if style == '"' and "\\" in raw:
        return _aligned(value, _escaped_pieces(raw), start=start)
    return _aligned(
        value,
        [(index, 1) for index in range(_body_start(raw, style), len(raw))],
        start=start,
        raw=raw,
    )


def _body_start(raw: str, style: str | None) -> int:
    """Return where the value itself begins: behind the quote, or behind the `|` line."""
    if style in {"|", ">"}:
        return raw.find("\n") + 1
    return 1 if style in {"'", '"'} else 0


def _escaped_pieces(raw: str) -> list[tuple[int, int]]:
    """Return offset and length of what stands for one character each."""
    pieces, index = [], 1
    while index < len(raw) - 1:
        match = _ESCAPE.match(raw, index)
        length = match.end() - index if match is not None else 1
        pieces.append((index, length))
        index += length
    return pieces


def _aligned(
    value: str, pieces: list[tuple[int, int]], *, start: int, raw: str | None = None
) -> Text:
    """Return the value laid over the pieces: blanks may be dropped or stand for a line's end."""
    offsets: list[int] = []
    place = 0
    for character in value:
        while (
            raw is not None
            and place < len(pieces) - 1
            and not _stands_for(raw[pieces[place][0]], character)
        ):
            place += 1
        index = pieces[min(place, len(pieces) - 1)][0] if pieces else 0
        offsets.append(start + index)
        place += 1
    return Text(value, offsets)


def _stands_for(found: str, wanted: str) -> bool:
    return found == wanted or (wanted == " " and found == "\n")
