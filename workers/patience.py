"""Waiting for what may never answer, without being bound to it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

POLL_S = 0.25
_T = TypeVar("_T")


def while_wanted(call: Callable[[], _T], *, check: Callable[[], None]) -> _T:
    """Return what a call returns; meanwhile `check` is asked and may raise to leave it alone.

    A call that was left ends by its own limit, or with this process.
    """
    future: Future[_T] = Future()
    threading.Thread(target=_settle, args=(future, call), name="call", daemon=True).start()
    while not wait([future], timeout=POLL_S).done:
        check()
    return future.result()


def _settle(future: Future[_T], call: Callable[[], _T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
        future.set_exception(error)
