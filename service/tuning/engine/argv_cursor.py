"""The place in an argument list, and what stands there: a flag or a value."""

from collections.abc import Callable, Sequence


class Cursor:
    """Walks an argument list from left to right."""

    def __init__(self, argv: Sequence[str], *, start: int, is_flag: Callable[[str], bool]) -> None:
        self._argv = list(argv)
        self._is_flag = is_flag
        self.index = start
        """Index of the next argument."""

    @property
    def is_at_end(self) -> bool:
        """Whether all arguments are read."""
        return self.index >= len(self._argv)

    @property
    def left(self) -> int:
        """How many arguments are not read yet."""
        return len(self._argv) - self.index

    @property
    def has_value(self) -> bool:
        """Whether the next argument can be the value of a flag."""
        return not self.is_at_end and not self._is_flag(self._argv[self.index])

    def peek(self) -> str:
        """Return the next argument and stay; empty at the end."""
        return "" if self.is_at_end else self._argv[self.index]

    def take(self) -> str:
        """Return the next argument and go on."""
        self.index += 1
        return self._argv[self.index - 1]

    def take_values(self) -> list[str]:
        """Return all values up to the next flag."""
        found = []
        while self.has_value:
            found.append(self.take())
        return found
