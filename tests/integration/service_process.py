"""A service as its users start it: a process of its own, with a store beside it."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

import httpx

_START_LIMIT_S = 30.0
_STOP_LIMIT_S = 30.0
_ADDRESS = re.compile(rb"Setpoint listens on (http://\S+)")


class ServiceProcess:
    """`setpoint serve` on a free port, with its data in a folder."""

    entry = "from service.run import serve; serve()"

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.data_dir = data_dir
        self._settings = {"DATA_DIR": str(data_dir), "PORT": "0", "WARM_UP": "false", **settings}
        self._lines: list[bytes] = []
        self._started = threading.Event()
        self.base_url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._finish()

    def start(self) -> None:
        """Start, and return once it says where it listens."""
        self._started.clear()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SETPOINT_")}  # noqa: TID251
        variables = {"SETPOINT_" + name: value for name, value in self._settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.entry],
            env=environment | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._started.wait(_START_LIMIT_S), self.errors
        self.client = httpx.Client(base_url=self.base_url, timeout=30)

    @property
    def errors(self) -> str:
        """All that it wrote to standard error so far."""
        return b"".join(self._lines).decode(errors="replace")

    def store_pid(self) -> int:
        """Return the process id of its store, as it logged it."""
        found = re.findall(r'"pid": (\d+), "event": "store_(?:re)?started"', self.errors)
        assert found, self.errors
        return int(found[-1])

    def stop(self, number: signal.Signals) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(number)
        self.process.wait(timeout=_STOP_LIMIT_S)
        self._finish()
        return self.process.returncode

    def _finish(self) -> None:
        self.process.wait(timeout=_STOP_LIMIT_S)
        self._reader.join(timeout=_STOP_LIMIT_S)
        if self.process.stderr:
            self.process.stderr.close()
        if hasattr(self, "client"):
            self.client.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            if found := _ADDRESS.search(line):
                self.base_url = found[1].decode()
                self._started.set()
        self._started.set()
