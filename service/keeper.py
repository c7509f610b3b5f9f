"""A child process that is kept running: started again whenever it ends."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from service.embedded import end_with_parent
from service.log import get_logger

_STOP_LIMIT_S = 20.0
_PAUSES_S = (1.0, 5.0, 30.0, 60.0)
_LONG_LIFE_S = 60.0
"""After so long a life the next end counts as the first again."""

_log = get_logger(__name__)


class Keeper(threading.Thread):
    """Starts a Python module whenever none runs, with a growing pause after each early end."""

    def __init__(
        self,
        name: str,
        *,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        stop_limit_s: float = _STOP_LIMIT_S,
        after_end: Callable[[int], None] | None = None,
    ) -> None:
        """Prepare to keep `python ARGUMENTS` running.

        Args:
            name: What log lines call it.
            arguments: Of the interpreter.
            environment: All of its environment.
            descriptors: Open files that it inherits.
            stop_limit_s: Time that it gets to end when it is asked to, seconds.
            after_end: Told the id of each process that ended.
        """
        super().__init__(name=name, daemon=True)
        self._arguments = arguments
        self._environment = dict(environment)
        self._descriptors = tuple(descriptors)
        self._stop_limit_s = stop_limit_s
        self._after_end = after_end
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ask_to_end()
        self.end()

    def run(self) -> None:
        """Start the process, wait for its end, and start the next one."""
        early_ends = 0
        while (process := self._start()) is not None:
            began = time.monotonic()
            code = process.wait()
            if self._after_end is not None:
                self._after_end(process.pid)
            early_ends = 1 if time.monotonic() - began > _LONG_LIFE_S else early_ends + 1
            pause_s = _PAUSES_S[min(early_ends, len(_PAUSES_S)) - 1]
            if self._stopping.wait(pause_s):
                return
            _log.error(f"{self.name}_ended", exit_code=code)

    def ask_to_end(self) -> None:
        """Let the process end, and start no other."""
        self._stopping.set()
        with self._starting:
            if self._process is not None:
                self._process.terminate()

    def end(self) -> None:
        """Wait for the end of the process, then make it end."""
        if self._process is not None:
            try:
                self._process.wait(timeout=self._stop_limit_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self.join(timeout=self._stop_limit_s)

    def _start(self) -> "subprocess.Popen[bytes] | None":
        with self._starting:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                [sys.executable, *self._arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                pass_fds=self._descriptors,
                start_new_session=True,  # Ctrl-C reaches us; we end it
                preexec_fn=end_with_parent,  # noqa: PLW1509  # one system call, no Python locks
            )
        _log.info(f"{self.name}_started", pid=self._process.pid)
        return self._process
