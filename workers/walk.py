"""Walking up to a limit by ask and tell: it proposes values and never knows who measures."""

import math

_CLOSE = 1.15
"""The walk ends when the value that held and the one that broke are this close."""
BACK_OFF = 0.8
"""The guides' share of the point where preemptions begin."""


class Walk:
    """Doubles while values hold, then halves the gap to the lowest one that broke."""

    def __init__(self, *, start: int, highest: int) -> None:
        self._highest = highest
        self._next = min(max(start, 1), highest)
        self.held: int | None = None
        self.broke: int | None = None
        self.reason = ""

    def ask(self) -> int | None:
        """Return the value to try next; None when the limit is known well enough."""
        if self.broke is None:
            return None if self.held == self._highest else self._next
        if self.broke == 1 or (self.held is not None and self._is_close(self.held, self.broke)):
            return None
        return self._next

    def tell(self, value: int, *, broken_by: str | None) -> None:
        """Learn whether a value held, or what it broke by."""
        if broken_by is None:
            self.held = max(value, self.held or 0)
        elif self.broke is None or value < self.broke:
            self.broke, self.reason = value, broken_by
        if self.broke is None:
            self._next = min(2 * value, self._highest)
        else:
            self._next = max(1, ((self.held or 0) + self.broke) // 2)

    @property
    def knee(self) -> int:
        """The largest value that held, or the lowest there is."""
        return self.held or 1

    @property
    def suggestion(self) -> int:
        """What to set: the value that broke less the guides' margin, and never above the knee."""
        if self.broke is None:
            return self.knee
        return max(1, min(self.knee, math.floor(BACK_OFF * self.broke)))

    @staticmethod
    def _is_close(held: int, broke: int) -> bool:
        return broke - held <= 1 or broke <= _CLOSE * held
