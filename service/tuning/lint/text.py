"""Text with the place of each of its characters in the file it came from."""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from service.tuning.lint.limits import MAX_CHARACTERS, Unreadable


class Span(msgspec.Struct, frozen=True, order=True):
    """A stretch of a file: offsets of its first character and of the one after its last."""

    start: int
    end: int


class Text(msgspec.Struct, frozen=True):
    """A value as its reader understands it, and the offset in the file of each character."""

    value: str
    offsets: Sequence[int]

    @classmethod
    def at(cls, value: str, start: int) -> "Text":
        """Return text that stands in the file exactly as it is."""
        return cls(value, range(start, start + len(value)))

    @classmethod
    def near(cls, value: str, start: int) -> "Text":
        """Return text of which only the beginning's place is known."""
        return cls(value, [start] * len(value))

    @property
    def start(self) -> int:
        """Offset of the first character; 0 of empty text."""
        return self.offsets[0] if len(self.offsets) else 0

    @property
    def span(self) -> Span:
        """Everything from the first character to the last."""
        return Span(self.start, self.offsets[-1] + 1 if len(self.offsets) else self.start)

    def cut(self, start: int, end: int | None = None) -> "Text":
        """Return the part from `start` up to `end`."""
        return Text(self.value[start:end], self.offsets[start:end])


EMPTY = Text("", ())


def join(parts: Sequence[Text]) -> Text:
    """Return the parts one after the other."""
    if len(parts) == 1:
        return parts[0]
    offsets = [offset for part in parts for offset in part.offsets]
    return Text("".join(part.value for part in parts), offsets)


class SourceFile:
    """A file's name and content, with lines and columns for offsets."""

    def __init__(self, path: str, content: str) -> None:
        if len(content) > MAX_CHARACTERS:
            raise Unreadable(f"it is longer than {MAX_CHARACTERS:,} characters")
        if "\0" in content:
            raise Unreadable("it holds NUL characters", offset=content.index("\0"))
        self.path = path
        self.content = content
        self._line_starts = [0]
        for line in content.split("\n")[:-1]:
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)

    @property
    def text(self) -> Text:
        """The whole content."""
        return Text.at(self.content, 0)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1 up."""
        line = bisect_right(self._line_starts, min(offset, len(self.content)))
        return line, offset - self._line_starts[line - 1] + 1

    def offset_of(self, line: int, column: int) -> int:
        """Return the offset of a place given from 0 up, as the readers of YAML and Python do."""
        return self._line_starts[min(line, len(self._line_starts) - 1)] + column
