"""How a function is turned into machine code."""

from collections.abc import Callable
from typing import TypeVar

import numba

_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Return the function compiled on its first call.

    The code is kept beside its module, or in the user's cache folder where that cannot be
    written; without any writable folder it is compiled anew in each process.
    """
    try:
        done: _Function = numba.njit(cache=True)(function)
    except RuntimeError:  # no folder to keep the code in
        done = numba.njit(function)
    return done
