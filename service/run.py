"""What `setpoint serve` runs: the embedded store, API processes and, on request, a worker."""

import contextlib
import importlib.util
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

import redis

from service.access import is_loopback
from service.embedded import DataFolderInUse, EmbeddedStore, StoreNotStarted
from service.keeper import Keeper
from service.log import configure_logging, get_logger
from service.oidc import InvalidTrust, read_trust
from service.processes import serve_side_by_side
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
_BACKLOG = 2048

_log = get_logger(__name__)


def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    data_dir: str | None = None,
    processes: int | None = None,
    with_worker: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT; what is given wins over the environment.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        data_dir: Folder of the embedded store.
        processes: Processes that answer requests.
        with_worker: Start a worker beside the API, on the same store.
    """
    try:
        settings = read_settings(host=host, port=port, data_dir=data_dir, processes=processes)
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
    address, base_url = listener.getsockname()[:2], _base_url(settings, listener)
    with _worker(settings, redis_url) if with_worker else contextlib.nullcontext():
        if settings.processes == 1:
            _serve_alone(settings, listener, client=client, base_url=base_url)
            return
        _refuse_false_trust(settings)
        family = listener.family
        listener.close()  # it was alone on its port; the processes share it
        serve_side_by_side(
            settings,
            address=address,
            family=family,
            redis_url=redis_url,
            when_ready=partial(_greet, base_url),
        )


def _serve_alone(
    settings: Settings, listener: socket.socket, *, client: redis.Redis, base_url: str
) -> None:
    # Loaded on use: beside others, this process itself answers nothing.
    from service.serving import serve_from  # noqa: PLC0415

    try:
        serve_from(listener, settings, client=client, when_ready=partial(_greet, base_url))
    except InvalidTrust as error:
        _give_up_for_trust(error)


def _refuse_false_trust(settings: Settings) -> None:
    """Give up here, before every process does."""
    if settings.oidc_file:
        try:
            read_trust(settings.oidc_file)
        except InvalidTrust as error:
            _give_up_for_trust(error)


def _give_up_for_trust(error: InvalidTrust) -> NoReturn:
    _give_up(f"{variable_of('oidc_file')}: {error}", EXIT_USAGE)


def _greet(base_url: str) -> None:
    """Say how to use the service."""
    from service.api.examples import curl_command  # noqa: PLC0415  # as above

    sys.stderr.write(f"Setpoint listens on {base_url}\nTry it:\n\n  {curl_command(base_url)}\n\n")
    sys.stderr.flush()


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
    environment = child_environment(redis_url=redis_url, data_dir=settings.data_dir)
    with Keeper("worker", arguments=["-m", "workers"], environment=environment):
        yield


def _base_url(settings: Settings, listener: socket.socket) -> str:
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


def _give_up(message: str, code: int) -> NoReturn:
    sys.stderr.write(f"setpoint: {message}\n")
    sys.exit(code)
