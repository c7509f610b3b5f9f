"""The stores that the contract suite runs on; each is a real server."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from service.embedded import EmbeddedStore
from service.store.client import connect

_TIMEOUT_S = 5.0
_START_ATTEMPTS = 500


@pytest.fixture(scope="session", params=["embedded", "redis-server", "container"])
def store_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    kind: str = request.param
    if kind == "embedded":
        with EmbeddedStore(str(folder)) as store:
            yield store.url
    elif kind == "redis-server":
        yield from _redis_server(folder)
    else:
        yield from _container()


@pytest.fixture
def client(store_url: str) -> Iterator[redis.Redis]:
    """Return a client of an empty store."""
    with connect(store_url, timeout_s=_TIMEOUT_S) as connected:
        connected.flushdb()
        yield connected


def _redis_server(folder: Path) -> Iterator[str]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    socket_path = folder / "redis.sock"
    command = [binary, "--port", "0", "--unixsocket", str(socket_path), "--save", ""]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(socket_path, process)
            yield f"unix://{socket_path}"
        finally:
            process.terminate()


def _container() -> Iterator[str]:
    if shutil.which("docker") is None:
        pytest.skip("no Docker engine: the docker command is not installed")
    answer = subprocess.run(["docker", "info"], check=False, capture_output=True, timeout=30)  # noqa: S607
    if answer.returncode != 0:
        pytest.skip("no Docker engine answers")
    from testcontainers.redis import RedisContainer

    with RedisContainer("valkey/valkey:8-alpine") as container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
        yield f"redis://{host}:{port}/0"


def _wait_for(socket_path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(_START_ATTEMPTS):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(socket_path))
            except OSError:
                pass
            else:
                return
        with_result = process.poll()
        assert with_result is None, "redis-server ended at its start"
        try:
            process.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            continue
    pytest.fail("redis-server did not listen in time")
