"""How long a worker's process lives: as its parent, within its plan, until told to end."""

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Iterator

from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class WorkerStopping(BaseException):
    """The worker is told to end: the run goes back to the queue."""


def end_with_the_worker() -> None:
    """Let this process end when the one that started it is killed."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def requeue_when_told() -> None:
    """Let this process give its run back to the queue when it is asked to end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


@contextlib.contextmanager
def limited_to(*, seconds: int) -> Iterator[None]:
    """Raise `JobTimeoutException` in the block once it has run for so long."""
    with UnixSignalDeathPenalty(seconds, JobTimeoutException):  # type: ignore[no-untyped-call]
        yield


def _stop(*_: object) -> None:
    raise WorkerStopping
