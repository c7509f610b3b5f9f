"""How a function is turned into machine code."""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return the function compiled on its first call.

    The code is kept beside its module, or in the user's cache folder where that cannot be
    written; without any writable folder it is compiled anew in each process. It runs without the
    interpreter's lock: a service that simulates in threads stays able to answer.
    """
    try:
        done = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep the code in
        done = numba.njit(nogil=True)(function)
    return cast("_Function", done)


def inlined(function: _Function) -> _Function:
    """Return the function compiled into each of its callers: for what inner loops call."""
    return cast("_Function", numba.njit(inline="always")(function))
