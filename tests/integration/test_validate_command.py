"""`setpoint validate` against a service, and the service's own worker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.service_process import ServiceProcess
from tests.integration.test_validations import request_for
from tests.integration.worker_process import FAKE, until

_LIMIT_S = 120


class ServiceWithWorker(ServiceProcess):
    """`setpoint serve` with its worker, and a fake `vllm` for it."""

    entry = "from service.run import serve; serve(with_worker=True)"


@pytest.fixture
def service(tmp_path: Path) -> ServiceWithWorker:
    return ServiceWithWorker(
        tmp_path / "data", VLLM_ENVS=str(FAKE), WORKER_NODE="own", HUB_LOOKUP="false"
    )


def _workers(service: ServiceWithWorker) -> list[object]:
    return list(service.client.get("/workers").json()["items"])


def _setpoint(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", "from service.cli.main import main; main()", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def test_a_request_is_proven_from_the_command_line(service: ServiceWithWorker) -> None:
    """Advice, proof and result in one command; the exit code is the verdict."""
    with service:
        until(lambda: _workers(service), "the worker")
        request = json.dumps(request_for("tiny"))

        done = _setpoint(
            "validate", "-f", "-", "--wait", "--server", service.base_url, stdin=request
        )
        shown = _setpoint(
            *("validate", "-f", "-", "--mode", "boot", "--wait", "--json"),
            *("--server", service.base_url),
            stdin=request,
        )

    assert done.returncode == 0, done.stderr
    assert "succeeded, verdict pass" in done.stdout
    assert "kv_cache_tokens" in done.stdout
    assert "queued 0%" in done.stderr
    assert json.loads(shown.stdout)["verdict"] == "pass"


def test_advice_can_wait_for_its_proof(service: ServiceWithWorker) -> None:
    """One command asks, proves and lets the verdict decide, as a pipeline needs it."""
    with service:
        until(lambda: _workers(service), "the worker")
        request = json.dumps(request_for("tiny"))

        done = _setpoint(
            *("recommend", "-f", "-", "--json", "--wait-for-validation", "boot"),
            *("--server", service.base_url),
            stdin=request,
        )
        offline = _setpoint("recommend", "-f", "-", "--wait-for-validation", "boot", stdin=request)
        record = json.loads(done.stdout)
        proofs = service.client.get(f"/recommendations/{record['id']}").json()["validations"]

    assert [proof["status"] for proof in proofs] == ["succeeded"]
    assert done.returncode == {"pass": 0, "fail": 1}.get(proofs[0]["verdict"], 3)
    assert offline.returncode == 2


def test_a_failed_start_is_no_pass(service: ServiceWithWorker) -> None:
    """What proved nothing exits with 3 and says why."""
    with service:
        until(lambda: _workers(service), "the worker")

        done = _setpoint(
            *("validate", "-f", "-", "--wait", "--server", service.base_url),
            stdin=json.dumps(request_for("fail-start")),
        )

    assert done.returncode == 3, done.stderr
    assert "does_not_fit" in done.stdout


def test_it_needs_one_thing_to_prove() -> None:
    """Neither an id nor a request, or both, is a usage error."""
    assert _setpoint("validate").returncode == 2
    assert _setpoint("validate", "x", "-f", "-").returncode == 2


def test_a_service_that_is_killed_takes_its_worker_along(service: ServiceWithWorker) -> None:
    """After `kill -9` of the service no worker of its own goes on without it."""
    with service:
        until(lambda: _workers(service), "the worker")
        worker = _worker_pid(service)

        service.stop(signal.SIGKILL)

        until(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")


def test_a_worker_that_dies_is_started_again(service: ServiceWithWorker) -> None:
    """The service keeps a worker: one that was killed is replaced."""
    with service:
        until(lambda: _workers(service), "the worker")
        first = _worker_pid(service)

        os.kill(first, signal.SIGKILL)

        until(lambda: _worker_pid(service) != first, "the next worker")


def _worker_pid(service: ServiceWithWorker) -> int:
    lines = [line for line in service.errors.splitlines() if '"worker_started"' in line]
    return int(json.loads(lines[-1])["pid"])
