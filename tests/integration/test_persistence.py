"""What a service acknowledged is there after `kill -9` of everything."""

import contextlib
import os
import signal
from pathlib import Path

import httpx

from service.api.bodies import encode
from service.api.examples import tuning_request
from tests.integration.service_process import ServiceProcess

_JSON = {"Content-Type": "application/json"}


def _post_recommendation(service: ServiceProcess) -> httpx.Response:
    answer = service.client.post(
        "/recommendations", content=encode(tuning_request()), headers=_JSON
    )
    assert answer.status_code == 201, answer.text
    return answer


def test_a_recommendation_survives_kill_9_of_service_and_store(tmp_path: Path) -> None:
    """After SIGKILL of both processes a new start answers the very same bytes."""
    with ServiceProcess(tmp_path) as service:
        made = _post_recommendation(service)
        store_pid = service.store_pid()
        service.stop(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # it may have followed its owner already
            os.kill(store_pid, signal.SIGKILL)

        service.start()
        found = service.client.get(made.headers["location"])
        listed = service.client.get("/recommendations")

    assert found.content == made.content
    assert found.headers["etag"] == made.headers["etag"]
    assert [row["id"] for row in listed.json()["items"]] == [made.json()["id"]]


def test_a_killed_store_loses_nothing_and_the_service_goes_on(tmp_path: Path) -> None:
    """When only the store is killed, requests fail openly until it is back with everything."""
    with ServiceProcess(tmp_path) as service:
        made = _post_recommendation(service)
        os.kill(service.store_pid(), signal.SIGKILL)

        answers = [service.client.get(made.headers["location"])]
        while answers[-1].status_code != 200 and len(answers) < 10_000:
            answers.append(service.client.get(made.headers["location"]))

    assert answers[-1].content == made.content
    assert {answer.status_code for answer in answers[:-1]} <= {503}
    assert all(answer.json()["code"] == "store-unavailable" for answer in answers[:-1])


def test_sigterm_ends_service_and_store_in_order(tmp_path: Path) -> None:
    """SIGTERM ends the process with code 0, and no store is left behind."""
    with ServiceProcess(tmp_path) as service:
        store_pid = service.store_pid()

        assert service.stop(signal.SIGTERM) == 0

    assert not Path(f"/proc/{store_pid}").exists()
    assert "Traceback" not in service.errors


def test_a_second_service_on_the_same_folder_is_refused_clearly(tmp_path: Path) -> None:
    """The second one says who holds the folder and what to do, and the first goes on."""
    with ServiceProcess(tmp_path) as first:
        second = ServiceProcess(tmp_path)
        with contextlib.suppress(httpx.UnsupportedProtocol), second:
            second.process.wait(timeout=30)

        assert second.process.returncode == 4
        assert f"process {first.process.pid}" in second.errors
        assert "Traceback" not in second.errors
        assert first.client.get("/readyz").status_code == 200


def test_a_taken_port_is_reported(tmp_path: Path) -> None:
    """A port in use ends the start with a sentence, before anything else starts."""
    with ServiceProcess(tmp_path / "a") as first:
        port = first.base_url.rsplit(":", 1)[1]
        with ServiceProcess(tmp_path / "b", PORT=port) as second:
            second.process.wait(timeout=30)

        assert second.process.returncode == 2
        assert "cannot listen on 127.0.0.1" in second.errors
        assert not (tmp_path / "b").exists()


def test_the_greeting_is_a_request_that_works(tmp_path: Path) -> None:
    """The command printed at the start can be pasted: its body is a valid request."""
    with ServiceProcess(tmp_path) as service:
        line = next(line for line in service.errors.splitlines() if "curl" in line)
        body = line.split(" -d '", 1)[1].rstrip("'")
        answer = service.client.post("/recommendations", content=body, headers=_JSON)

    assert f"curl -s {service.base_url}/recommendations" in line
    assert answer.status_code == 201
