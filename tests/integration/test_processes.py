"""Several processes behind one port: one store, one set of metrics, no request lost to restarts."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from service.api import examples
from tests.integration.service_process import ServiceProcess

_ENOUGH = 24
"""Connections of which surely each process gets some."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Yield a service of two processes."""
    with ServiceProcess(tmp_path, PROCESSES="2") as process:
        yield process


def _servers(served: ServiceProcess) -> list[int]:
    found = re.findall(r'"pid": (\d+), "event": "server_started"', served.errors)
    return [int(pid) for pid in found]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_process_sees_what_another_one_stored(served: ServiceProcess) -> None:
    """A record made over one connection is found over every other, whichever process answers."""
    made = served.client.post(
        "/recommendations", content=msgspec.json.encode(examples.tuning_request())
    )

    answers = [httpx.get(served.base_url + made.headers["location"]) for _ in range(_ENOUGH)]

    assert len(_servers(served)) == 2
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {made.content}


def test_metrics_are_those_of_all_processes(served: ServiceProcess) -> None:
    """Whichever process is scraped, requests that others answered are counted."""
    for _ in range(_ENOUGH):
        httpx.get(f"{served.base_url}/gpus/H200-SXM-141GB")

    scraped = [httpx.get(f"{served.base_url}/metrics").text for _ in range(4)]

    counted = 'setpoint_http_requests_total{method="GET",route="/gpus/{name}",status="200"}'
    assert all(f"{counted} {_ENOUGH}.0\n" in text for text in scraped)
    assert all("setpoint_store_up 1.0" in text for text in scraped)


def test_a_killed_process_is_started_again(served: ServiceProcess) -> None:
    """Connections that came while a process was away are answered once the next one runs."""
    os.kill(_servers(served)[0], signal.SIGKILL)

    answers = [httpx.get(f"{served.base_url}/livez", timeout=60) for _ in range(_ENOUGH)]

    assert {answer.status_code for answer in answers} == {200}


def test_the_end_of_the_service_is_the_end_of_every_process(served: ServiceProcess) -> None:
    """SIGTERM ends the processes and then the store, with exit code 0."""
    pids = [*_servers(served), served.store_pid()]

    code = served.stop(signal.SIGTERM)

    assert code == 0
    assert not [pid for pid in pids if _is_running(pid)]


def test_a_taken_port_is_reported(served: ServiceProcess, tmp_path: Path) -> None:
    """Two services never share a port by accident, however many processes each has."""
    port = served.base_url.rpartition(":")[2]
    other = ServiceProcess(tmp_path / "other", PROCESSES="2", PORT=port)

    with other:
        assert other.process.wait(timeout=30) == 2
    assert "cannot listen" in other.errors
