"""How every run goes: its end is written down, whatever happens on the way to it."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rq.timeouts import JobTimeoutException

from api_schemas.validation import Failure
from service.log import get_logger
from workers.run import Cancelled, Failed, OutOfTime, Run, TakenOver

_UNWRITABLE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EEXIST,
        errno.ENOTDIR,
    }
)
BadEnd = Literal["cancelled", "timed_out", "failed"]
_log = get_logger(__name__)


def conduct(
    run: Run,
    folder: Path,
    *,
    work: Callable[[], None],
    end: Callable[[BadEnd, Failure | None], None],
) -> None:
    """Do the work in a folder of its own, and write how it ended when it did not succeed.

    `end` gets a failure when it failed. The folder is gone afterwards.
    """
    try:
        _do(run, folder, work=work, end=end)
    except TakenOver as error:
        _log.warning("run_taken_over", reason=str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _do(
    run: Run,
    folder: Path,
    *,
    work: Callable[[], None],
    end: Callable[[BadEnd, Failure | None], None],
) -> None:
    """Do the work and write a bad end.

    Raises:
        TakenOver: Another attempt has the record, be it at work or at the end.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work()
    except TakenOver:
        raise
    except Cancelled:
        end("cancelled", None)
    except (OutOfTime, JobTimeoutException):
        end("timed_out", None)
    except Failed as error:
        end("failed", error.failure)
    except Exception as error:  # noqa: BLE001  # the record must say so, whatever it was
        _log.exception("run_broke", id=run.validation.id)
        end("failed", Failure(stage="load", reason=_reason_of(error), log_tail=""))


def _reason_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return f"the node's work folder cannot be written: {error.strerror}"
    return f"a fault of Setpoint: {error!r}"
