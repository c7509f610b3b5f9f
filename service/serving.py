"""One process that answers requests, alone or beside others on the same store.

`python -m service.serving LISTENER READY` serves from an inherited socket and writes one byte to
the inherited pipe once it answers; everything else is in the environment.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import redis
import uvicorn

from service.app import create_app
from service.log import configure_logging
from service.settings import Settings, read_settings
from service.store.client import connect

UNREAD_LIMIT_S = 60.0
"""A connection ends whose other side has not read what was sent to it for so long."""


def give_up_unread(listener: socket.socket, *, limit_s: float = UNREAD_LIMIT_S) -> None:
    """Let the kernel end connections of a listener whose other side no longer reads.

    An event stream to such a reader would otherwise hold its place for as long as it likes; a wait
    in the application could not take back what the kernel still holds to be sent.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        milliseconds = round(1000 * limit_s)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def serve_from(
    listener: socket.socket,
    settings: Settings,
    *,
    client: redis.Redis,
    when_ready: Callable[[], None],
) -> None:
    """Answer requests until SIGTERM or SIGINT.

    Raises:
        InvalidTrust: The file of trusted issuers cannot be used.
    """
    give_up_unread(listener)
    config = uvicorn.Config(
        create_app(settings, client),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )
    _Server(config, when_ready=when_ready).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Uvicorn that tells when it is ready, and leaves cleaning up to us."""

    def __init__(self, config: uvicorn.Config, *, when_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_ready = when_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets=sockets)
        if self.started and not self.should_exit:
            self._when_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT end the loop.

        Uvicorn would raise them again afterwards, which ends the process before the store is.
        """
        caught = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self.handle_exit) for number in caught]
        try:
            yield
        finally:
            for number, handler in zip(caught, before, strict=True):
                signal.signal(number, handler)


def main() -> None:
    """Serve beside others: the parent owns store and sockets."""
    listener, ready = (int(argument) for argument in sys.argv[1:])
    settings = read_settings()
    configure_logging(level=settings.log_level, output=settings.log_format)
    if settings.redis_url is None:
        raise SystemExit("SETPOINT_REDIS_URL must name the store that the processes share")
    client = connect(settings.redis_url, timeout_s=settings.store_timeout_s)

    def tell() -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody waits for one started again
            os.write(ready, b"1")

    with socket.socket(fileno=listener) as shared:
        serve_from(shared, settings, client=client, when_ready=tell)


if __name__ == "__main__":
    main()
