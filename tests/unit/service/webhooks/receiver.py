"""A receiver of webhooks on this machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver(ThreadingHTTPServer):
    """Takes messages; answers the given statuses in turn, then 204."""

    daemon_threads = True

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.location = ""
        self.retry_after = ""
        self.received: list[tuple[dict[str, str], str]] = []
        self.hold = threading.Event()
        self.hold.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        """The address of its hook."""
        return f"http://127.0.0.1:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # the library's name
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.server.hold.wait(30)
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        if self.server.location:
            self.send_header("location", self.server.location)
        if self.server.retry_after:
            self.send_header("retry-after", self.server.retry_after)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Yield a receiver that listens."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.hold.set()
            server.shutdown()
            thread.join()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
