"""Several processes that answer requests side by side on one port and one store.

Each has a socket of its own on the shared port, so that the kernel spreads connections over them.
The sockets belong to the parent: what arrives while a process is started again waits for it.
"""

import contextlib
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client.multiprocess import mark_process_dead

from service.keeper import Keeper
from service.settings import Settings, child_environment

METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which prometheus_client adds up the processes' counters."""
_BACKLOG = 2048
_GRACE_S = 10.0
"""Beyond the time for running requests, what a process gets to end."""


def serve_side_by_side(
    settings: Settings,
    *,
    address: tuple[str, int],
    family: socket.AddressFamily,
    redis_url: str,
    when_ready: Callable[[], None],
) -> None:
    """Keep `settings.processes` processes running until SIGTERM or SIGINT."""
    with (
        tempfile.TemporaryDirectory(prefix="setpoint-metrics-") as metrics,
        contextlib.ExitStack() as stack,
    ):
        asked = stack.enter_context(_asked_to_end())
        environment = {
            **child_environment(
                host=settings.host,
                port=str(address[1]),
                data_dir=settings.data_dir,
                redis_url=redis_url,
            ),
            METRICS_VARIABLE: metrics,
        }
        reading, writing = os.pipe()
        keepers = [
            _keeper(
                stack.enter_context(_listener(address, family)),
                ready=writing,
                environment=environment,
                stop_limit_s=settings.shutdown_grace_s + _GRACE_S,
            )
            for _ in range(settings.processes)
        ]
        for keeper in keepers:
            keeper.start()
        _greet_when_all_are_ready(reading, len(keepers), when_ready)
        asked.wait()
        for keeper in keepers:
            keeper.ask_to_end()
        for keeper in keepers:
            keeper.end()
        os.close(writing)


def _keeper(
    listener: socket.socket, *, ready: int, environment: dict[str, str], stop_limit_s: float
) -> Keeper:
    descriptor = listener.fileno()
    return Keeper(
        "server",
        arguments=["-m", "service.serving", str(descriptor), str(ready)],
        environment=environment,
        descriptors=[descriptor, ready],
        stop_limit_s=stop_limit_s,
        after_end=partial(mark_process_dead, path=environment[METRICS_VARIABLE]),
    )


def _listener(address: tuple[str, int], family: socket.AddressFamily) -> socket.socket:
    return socket.create_server(address, family=family, backlog=_BACKLOG, reuse_port=True)


def _greet_when_all_are_ready(reading: int, count: int, greet: Callable[[], None]) -> None:
    """Read one byte of each process in a thread of its own, then greet."""

    def wait() -> None:
        with open(reading, "rb", buffering=0) as pipe:  # a descriptor
            heard = 0
            while heard < count:
                told = pipe.read(1)
                if not told:
                    return
                heard += len(told)
            greet()

    threading.Thread(target=wait, name="ready", daemon=True).start()


@contextlib.contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM or SIGINT sets."""
    asked = threading.Event()
    caught = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: asked.set()) for number in caught]
    try:
        yield asked
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)
