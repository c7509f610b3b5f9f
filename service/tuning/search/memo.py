"""What has been computed already, so that everything is computed once."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
encoded = msgspec.msgpack.Encoder().encode
"""The content of a value, to look it up by."""


class Memo(Generic[T]):
    """The latest results by all that they depend on; of too many the oldest are forgotten.

    Keys are content, never identity, so that requests may share what they have in common. `most`
    must hold what many models in turn ask for: of questions that come round in a circle, one that
    is even a little too small knows none.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._results: dict[Hashable, T] = {}
        self._adding = threading.Lock()

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the known result, or compute it."""
        known = self._results.get(key)
        if known is not None:
            return known
        result = compute()
        with self._adding:
            self._results[key] = result
            if len(self._results) > self._most:
                del self._results[next(iter(self._results))]
        return result
