"""Webhooks of a running service, over a crash and with the command line."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from standardwebhooks import Webhook as Verifier

from service.cli.main import cli
from tests.integration.service_process import ServiceProcess
from tests.integration.test_validations import request_for
from tests.integration.worker_process import until
from tests.unit.service.webhooks.receiver import Receiver, receiving

_SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


def _command(service: ServiceProcess, *arguments: str) -> Any:  # noqa: ANN401  # JSON
    done = CliRunner().invoke(cli, ["webhooks", *arguments, "--json", "--server", service.base_url])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def _cancelled_in_the_queue(service: ServiceProcess, url: str) -> str:
    """Return the id of a validation that no worker ever took."""
    made = service.client.post("/recommendations", json=request_for("tiny"), timeout=240)
    assert made.status_code == 201, made.text
    plan = {
        "mode": "boot",
        "when_no_worker": "wait",
        "webhook": {"url": url, "secret_ref": "team"},
    }
    queued = service.client.post(made.headers["location"] + "/validations", json=plan)
    assert queued.status_code == 202, queued.text
    assert service.client.delete(queued.headers["location"]).status_code == 202
    return str(queued.json()["id"])


@pytest.mark.slow
def test_a_killed_service_goes_on_delivering_when_it_is_back(
    receiver: Receiver, tmp_path: Path
) -> None:
    """What a receiver refused is sent again by the next process, and a person can ask once more."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "team").write_text(_SECRET)
    receiver.statuses = [503]
    with ServiceProcess(
        tmp_path / "data",
        WEBHOOK_SECRETS_DIR=str(tmp_path / "secrets"),
        WEBHOOK_NETWORKS="127.0.0.0/8",
    ) as service:
        identifier = _cancelled_in_the_queue(service, receiver.url)
        until(lambda: _tries(service), "the first try")
        (refused,) = _command(service, "list", "--validation", identifier)["items"]

        service.process.kill()
        service._finish()
        service.start()
        until(lambda: len(receiver.received) > 1, "the retry")
        until(lambda: _command(service, "list")["items"][0]["status"] == "delivered", "the log")
        replayed = _command(service, "replay", identifier)
        until(lambda: len(receiver.received) > 2, "the replay")

    assert (refused["status"], refused["attempts"][0]["status_code"]) == ("pending", 503)
    assert (replayed["status"], replayed["replays"]) == ("pending", 1)
    for headers, body in receiver.received:
        assert Verifier(_SECRET).verify(body, headers)["type"] == "validation.cancelled"
        assert headers["webhook-id"] == identifier


def _tries(service: ServiceProcess) -> int:
    items = service.client.get("/webhook-deliveries").json()["items"]
    return sum(len(item["attempts"]) for item in items)


@pytest.mark.slow
def test_without_secrets_a_service_sends_nothing_and_says_what_waits(
    receiver: Receiver, tmp_path: Path
) -> None:
    """Another process may have the secrets; until then the message is pending."""
    with ServiceProcess(tmp_path / "data", WEBHOOK_NETWORKS="127.0.0.0/8") as service:
        identifier = _cancelled_in_the_queue(service, receiver.url)

        (waiting,) = _command(service, "list")["items"]

    assert (waiting["id"], waiting["status"], waiting["attempts"]) == (identifier, "pending", [])
    assert receiver.received == []
