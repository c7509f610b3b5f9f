"""One process that serves: the embedded store, the API and, on request, a worker beside it."""

import contextlib
import importlib.util
import itertools
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

import redis
import uvicorn

from service.access import is_loopback
from service.api.examples import curl_command
from service.app import create_app
from service.embedded import DataFolderInUse, EmbeddedStore, StoreNotStarted, end_with_parent
from service.log import configure_logging, get_logger
from service.oidc import InvalidTrust
from service.settings import (
    InvalidSettings,
    Settings,
    child_environment,
    read_settings,
    variable_of,
)
from service.store.api_keys import ApiKeyStore
from service.store.client import StoreUnavailable, connect

EXIT_USAGE = 2
EXIT_UNAVAILABLE = 4
_WORKER_STOP_LIMIT_S = 20.0
_WORKER_PAUSES_S = (1.0, 5.0, 30.0, 60.0)
_BACKLOG = 2048

_log = get_logger(__name__)


def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    with_worker: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; what is given wins over the environment.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        data_dir: Folder of the embedded store.
        with_worker: Start a worker beside the API, on the same store.
    """
    try:
        settings = read_settings(host=host, port=port, data_dir=data_dir)
    except InvalidSettings as error:
        _give_up(str(error), EXIT_USAGE)
    configure_logging(level=settings.log_level, output=settings.log_format)
    try:
        with _listening(settings) as listener, _store(settings) as redis_url:
            _serve(settings, listener=listener, redis_url=redis_url, with_worker=with_worker)
    except (DataFolderInUse, StoreNotStarted) as error:
        _give_up(str(error), EXIT_UNAVAILABLE)


def _serve(
    settings: Settings, *, listener: socket.socket, redis_url: str, with_worker: bool
) -> None:
    client = connect(redis_url, timeout_s=settings.store_timeout_s)
    _refuse_to_serve_strangers(settings, client)
    try:
        app = create_app(settings, client)
    except InvalidTrust as error:
        _give_up(f"{variable_of('oidc_file')}: {error}", EXIT_USAGE)
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=settings.shutdown_grace_s,
    )
    with _worker(settings, redis_url) if with_worker else contextlib.nullcontext():
        _Server(config, base_url=_base_url(settings, listener)).run(sockets=[listener])


def _refuse_to_serve_strangers(settings: Settings, client: redis.Redis) -> None:
    """Give up when other machines could call and no key was ever made."""
    if is_loopback(settings.host) or settings.oidc_file:
        return
    try:
        made = ApiKeyStore(client).any_made()
    except StoreUnavailable as error:
        _give_up(f"the store cannot be reached: {error}", EXIT_UNAVAILABLE)
    if not made:
        _give_up(
            f"refuses to listen on {settings.host} without API keys: make one with "
            "`setpoint keys create --name admin --scope admin`, or listen on 127.0.0.1",
            EXIT_USAGE,
        )


class _Server(uvicorn.Server):
    """Uvicorn that says how to use the service once it is ready, and leaves cleaning up to us."""

    def __init__(self, config: uvicorn.Config, *, base_url: str) -> None:
        super().__init__(config)
        self._base_url = base_url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then greet."""
        await super().startup(sockets=sockets)
        if self.started and not self.should_exit:
            sys.stderr.write(f"Setpoint listens on {self._base_url}\nTry it:\n\n")
            sys.stderr.write(f"  {curl_command(self._base_url)}\n\n")
            sys.stderr.flush()

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


@contextlib.contextmanager
def _store(settings: Settings) -> Iterator[str]:
    """Yield the URL of the store: the one that is set, or an embedded one that ends with us."""
    if settings.redis_url is not None:
        yield settings.redis_url
        return
    with EmbeddedStore(settings.data_dir) as store:
        _log.info("store_started", pid=store.pid)
        yield store.url


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """Yield a bound socket, so that a taken port is reported before anything starts."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        _give_up(
            f"cannot listen on {where}: {error.strerror}; "
            f"set {variable_of('host')} and {variable_of('port')}",
            EXIT_USAGE,
        )
    with listener:
        yield listener


@contextlib.contextmanager
def _worker(settings: Settings, redis_url: str) -> Iterator[None]:
    """Keep a worker on the same store: a process of its own, started again when it ends."""
    if importlib.util.find_spec("workers.__main__") is None:
        yield
        return
    stopping = threading.Event()
    keeper = _WorkerKeeper(
        child_environment(redis_url=redis_url, data_dir=settings.data_dir), stopping
    )
    keeper.start()
    try:
        yield
    finally:
        stopping.set()
        keeper.end()


class _WorkerKeeper(threading.Thread):
    """Starts a worker whenever none runs, with a growing pause after each early end."""

    def __init__(self, environment: dict[str, str], stopping: threading.Event) -> None:
        super().__init__(name="worker", daemon=True)
        self._environment = environment
        self._stopping = stopping
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start a worker, wait for its end, and start the next one."""
        for pause_s in itertools.chain(_WORKER_PAUSES_S, itertools.repeat(_WORKER_PAUSES_S[-1])):
            if self._stopping.is_set():
                return
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workers"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches us; we end the worker
                preexec_fn=end_with_parent,  # noqa: PLW1509  # one system call, no Python locks
            )
            _log.info("worker_started", pid=self._process.pid)
            code = self._process.wait()
            if self._stopping.wait(pause_s):
                return
            _log.error("worker_ended", exit_code=code)

    def end(self) -> None:
        """Ask the worker to end, then make it."""
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=_WORKER_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self.join(timeout=_WORKER_STOP_LIMIT_S)


def _base_url(settings: Settings, listener: socket.socket) -> str:
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def _give_up(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"setpoint: {message}\n")
    sys.exit(code)
