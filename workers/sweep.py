"""Ending what a killed worker left on this node."""

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from service.log import get_logger
from workers.server import MARK

_log = get_logger(__name__)


def end_leftovers(store: str, node: str, *, is_claimed: Callable[[str], bool]) -> list[int]:
    """End marked processes of this store and node that nobody works on; return their ids.

    The supervisor of a server ends it with its owner, so that something is left only when the
    supervisor was killed as well.
    """
    ended = []
    for entry in Path("/proc").iterdir():
        mark = _mark(entry) if entry.name.isdigit() else None
        owner, _, validation = (mark or "").rpartition("/")
        if owner != f"{store}/{node}" or int(entry.name) == os.getpid() or is_claimed(validation):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(entry.name), signal.SIGKILL)
            ended.append(int(entry.name))
            _log.warning("leftover_ended", pid=int(entry.name), validation=validation)
    return ended


def _mark(entry: Path) -> str | None:
    try:
        variables = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = MARK.encode() + b"="
    found = [item for item in variables if item.startswith(prefix)]
    return found[0].removeprefix(prefix).decode(errors="replace") if found else None
