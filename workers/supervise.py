"""Run one command so that nothing of it outlives its owner: `python -P supervise.py CMD ...`.

The owner holds this process's standard input. When it closes, whether on purpose or because the
owner was killed with `kill -9`, the command is stopped kindly, then its whole process group firmly.
vLLM needs this: its engine processes survive a killed parent and keep the GPU's memory.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE_S = 10.0
_POLL_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: orphans of the command become our children


def main(argv: list[str]) -> int:
    """Run the command until it ends or standard input closes; return its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.close(0))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127
    try:
        if _owner_left(child):
            _stop(child)
    finally:
        _kill_group(child)
    code = child.wait(timeout=GRACE_S)
    return 128 - code if code < 0 else code


def group_members(group: int) -> list[int]:
    """Return the live processes of a process group."""
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(entry.name) for entry in entries if _group_of(entry) == group]


def _group_of(entry: Path) -> int | None:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[2])


def _owner_left(child: subprocess.Popen[bytes]) -> bool:
    """Wait for either; True when standard input closed while the command still ran."""
    watch = os.pidfd_open(child.pid)
    try:
        while True:
            try:
                ready, _, _ = select.select([0, watch], [], [])
            except (OSError, ValueError):
                return True
            if watch in ready:
                return False
            if not os.read(0, 4096):
                return True
    finally:
        os.close(watch)


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        return


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End every process of the group and collect it, so that not even a zombie stays."""
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.poll()
        _collect_orphans(child)
        if child.returncode is not None and not group_members(child.pid):
            return
        time.sleep(_POLL_S)


def _collect_orphans(child: subprocess.Popen[bytes]) -> None:
    """Reap what was handed to us; the command is left to `child.poll`, or its code is lost."""
    peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, peek)) and ended.si_pid != child.pid:
            os.waitpid(ended.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
