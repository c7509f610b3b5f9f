"""A worker as it runs on a node: a process of its own, with the fake `vllm`."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import redis

from service.store.client import connect
from service.store.workers import store_identity
from workers.run import mark_of
from workers.server import MARK

FAKE = Path(__file__).parents[1] / "fakes" / "vllm"
_LIMIT_S = 600.0
"""A machine with other work takes many times what a quiet one does."""
_POLL_S = 0.05
_pause = threading.Event()


class WorkerProcess:
    """`python -m workers` on a store, under a node's name."""

    def __init__(self, store_url: str, folder: Path, *, node: str, **settings: str) -> None:
        self.node = node
        self._store_url = store_url
        self._settings = {
            "SETPOINT_REDIS_URL": store_url,
            "SETPOINT_DATA_DIR": str(folder),
            "SETPOINT_WORKER_NODE": node,
            "SETPOINT_VLLM_ENVS": str(FAKE),
            "SETPOINT_LOG_FORMAT": "console",
        } | settings
        self._log = folder / f"{node}.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.wait(timeout=_LIMIT_S)

    def start(self) -> None:
        """Start it; it registers by itself."""
        others = {k: v for k, v in os.environ.items() if not k.startswith("SETPOINT_")}  # noqa: TID251
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "workers"],
                env=others | self._settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self.process.wait(timeout=_LIMIT_S)

    def terminate(self) -> None:
        """Ask it to end, and wait until it has."""
        self.process.terminate()
        self.process.wait(timeout=_LIMIT_S)

    @property
    def log(self) -> str:
        """All that it said."""
        return self._log.read_text(errors="replace")

    def processes(self) -> list[int]:
        """Return what runs for this node's validations: servers, clients, their supervisors."""
        with connect(self._store_url, timeout_s=5.0) as client:
            prefix = f"{MARK}={mark_of(store_identity(client), self.node, '')}".encode()
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and prefix in _environment(entry)
        ]

    def servers(self) -> list[int]:
        """Return the processes of the fake server itself."""
        return [pid for pid in self.processes() if _is_server(pid)]


def gpu_settings(folder: Path, gpus: Sequence[str]) -> dict[str, str]:
    """Return the variables of a worker whose node has these L4s and a fake `vllm` for them."""
    library, environment = folder / "library", folder / "vllm"
    if not library.is_dir():
        library.mkdir()
        shutil.copy(FAKE.parent / "nvml.py", library / "pynvml.py")
        (environment / "bin").mkdir(parents=True)
        (environment / "bin" / "vllm").symlink_to(FAKE)
        (environment / "lib/python3.11/site-packages/vllm-0.32.0.dist-info").mkdir(parents=True)
    return {
        "FAKE_GPUS": ",".join(gpus),
        "PYTHONPATH": str(library),
        "SETPOINT_VLLM_ENVS": str(environment),
    }


class Gate:
    """Holds the loads of the model `held-load` until they are let through."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "gate"
        self._folder.mkdir()

    @property
    def model_path(self) -> str:
        """The `model_path` of the plan whose loads are held."""
        return str(self._folder)

    def let_one_through(self) -> None:
        """Let one load end."""
        (self._folder / "one").touch()

    def open(self) -> None:
        """Let all loads end, now and later."""
        (self._folder / "open").touch()


def let_claims_run_out(client: redis.Redis) -> None:
    """Do what time does to the keys that a dead process no longer renews."""
    for key in client.scan_iter("*"):
        if b":owner" in key or b":lease:" in key:
            client.delete(key)


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return once it holds."""
    for _ in range(int(_LIMIT_S / _POLL_S)):
        if condition():
            return
        _pause.wait(_POLL_S)
    raise AssertionError(f"{what} did not come within {_LIMIT_S:.0f} s")


def kill(pid: int) -> None:
    """End a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _environment(entry: Path) -> bytes:
    try:
        if (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return b""
        return (entry / "environ").read_bytes()
    except OSError:
        return b""


def _is_server(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return (
        any(word.endswith(b"/vllm") for word in words[:3])
        and b"serve" in words
        and b"bench" not in words[:5]
        and (b"supervise.py" not in b" ".join(words))
    )
