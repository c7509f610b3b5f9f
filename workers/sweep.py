"""Ending what a killed worker left on this node."""

import contextlib
import os
import signal
from pathlib import Path

import redis

from service.log import get_logger
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from workers.server import MARK

_log = get_logger(__name__)


def is_claimed(client: redis.Redis, identifier: str) -> bool:
    """Tell whether a live process works on a run, be it a validation or a study.

    Raises:
        StoreUnavailable: The store did not answer.
    """
    stores = (ValidationStore(client, retention=None), StudyStore(client))
    return any(store.is_claimed(identifier) for store in stores)


def is_of_a_live_run(client: redis.Redis, store: str, pid: int) -> bool:
    """Tell whether a process belongs to a run of this store that is worked on.

    What a lease's holder started is told from what others did, and from what an ended run left. A
    process that this one cannot see, as one outside a container, is nobody's.
    """
    owner, _, run = (_mark(Path("/proc") / str(pid)) or "").rpartition("/")
    return owner.startswith(f"{store}/") and is_claimed(client, run)


def end_leftovers(client: redis.Redis, store: str, node: str) -> list[int]:
    """End marked processes of this store and node that nobody works on; return their ids.

    The supervisor of a server ends it with its owner, so that something is left only when the
    supervisor was killed as well.
    """
    ended = []
    for entry in Path("/proc").iterdir():
        mark = _mark(entry) if entry.name.isdigit() else None
        owner, _, run = (mark or "").rpartition("/")
        if owner != f"{store}/{node}" or int(entry.name) == os.getpid() or is_claimed(client, run):
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(entry.name), signal.SIGKILL)
            ended.append(int(entry.name))
            _log.warning("leftover_ended", pid=int(entry.name), run=run)
    return ended


def _mark(entry: Path) -> str | None:
    try:
        variables = (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = MARK.encode() + b"="
    found = [item for item in variables if item.startswith(prefix)]
    return found[0].removeprefix(prefix).decode(errors="replace") if found else None
