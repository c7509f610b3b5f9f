"""How a function is turned into machine code."""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, TypeVar, cast

import numba

_LEAN: Any = {"nogil": True, "_nrt": False, "error_model": "numpy"}
"""Compiled code runs without the interpreter's lock, and allocates no memory: counting who holds an
array takes longer than the work of a step."""
_Function = TypeVar("_Function", bound=Callable[..., object])
_PACKAGES = ("service.tuning.simulation", "service.tuning.latency")
"""Where compiled functions and what they call stand."""


def compiled(function: _Function) -> _Function:
    """Return the function compiled on its first call.

    The code is kept beside its module, or in the user's cache folder where that cannot be
    written; without any writable folder it is compiled anew in each process. It runs without the
    interpreter's lock: a service that simulates in threads stays able to answer.

    Numba keys its cache by name and by the function's own file, not by what it calls from other
    files: the name carries a hash of all of them, or a change there would run stale code.
    """
    function.__qualname__ = f"{function.__qualname__}_{_sources_hash()}"
    try:
        done = numba.njit(cache=True, **_LEAN)(function)
    except RuntimeError:  # no folder to keep the code in
        done = numba.njit(**_LEAN)(function)
    return cast("_Function", done)


def inlined(function: _Function) -> _Function:
    """Return the function compiled into each of its callers: for what inner loops call."""
    return cast("_Function", numba.njit(forceinline=True, **_LEAN)(function))


@cache
def _sources_hash() -> str:
    files = sorted(
        (file for package in _PACKAGES for file in resources.files(package).iterdir()),
        key=lambda file: file.name,
    )
    sources = (file.read_bytes() for file in files if file.name.endswith(".py"))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]
