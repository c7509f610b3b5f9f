"""Telling the outcome to who asked for it."""

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import msgspec
import pytest

from api_schemas.validation import Validation, ValidationPlan, Webhook
from workers.webhook import deliver, read_secret, signed_headers

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_SECRET = b"0123456789abcdef01234567"


class Receiver(HTTPServer):
    """Takes messages, refusing the first ones on request."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.received: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # the library's name
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(503 if len(self.server.received) <= self.server.refusals else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _validation(receiver: Receiver, *, status: str = "succeeded") -> Validation:
    url = f"http://127.0.0.1:{receiver.server_port}/hook"
    hook = Webhook(url=url, secret_ref="team")  # noqa: S106  # a name, no secret
    plan = ValidationPlan(mode="boot", webhook=hook)
    return msgspec.convert(
        {
            "id": "v1",
            "recommendation_id": "r1",
            "mode": "boot",
            "plan": msgspec.to_builtins(plan),
            "status": status,
            "stage": status,
            "progress": 1.0,
            "created_at": "",
            "verdict": "pass",
        },
        Validation,
    )


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "team").write_text("whsec_" + base64.b64encode(_SECRET).decode() + "\n")
    return tmp_path


def test_the_receiver_can_verify_what_it_gets(receiver: Receiver, secrets: Path) -> None:
    """Id, time and body are signed with the shared secret as the specification says."""
    assert deliver(_validation(receiver), secrets_dir=secrets, now=_NOW)

    headers, body = receiver.received[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(_SECRET, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    message = msgspec.json.decode(body)
    assert message["type"] == "validation.succeeded"
    assert message["data"]["url"] == "/validations/v1"


def test_the_signature_is_that_of_the_specifications_example() -> None:
    """The known example of the Standard Webhooks libraries gives the known signature."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    at = datetime.fromtimestamp(1614265330, tz=UTC)

    headers = signed_headers(
        b'{"test": 2432232314}', identifier="msg_p5jXN8AQM9LWM0D4loKWxJek", at=at, secret=secret
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_refusal_is_tried_again_with_the_same_id(receiver: Receiver, secrets: Path) -> None:
    """A receiver that is briefly away gets the message later, and can tell the repeat."""
    receiver.refusals = 2

    assert deliver(_validation(receiver), secrets_dir=secrets, now=_NOW, pauses=(0, 0, 0))

    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 3


def test_what_stays_refused_is_given_up(receiver: Receiver, secrets: Path) -> None:
    """After its tries the delivery ends; the record is there to be read."""
    receiver.refusals = 9

    assert not deliver(_validation(receiver), secrets_dir=secrets, now=_NOW, pauses=(0, 0))
    assert len(receiver.received) == 2


def test_without_a_secret_nothing_is_sent(receiver: Receiver, tmp_path: Path) -> None:
    """No caller can make a worker send to an address that its operator did not prepare."""
    assert not deliver(_validation(receiver), secrets_dir=None, now=_NOW)
    assert not deliver(_validation(receiver), secrets_dir=tmp_path, now=_NOW)
    assert receiver.received == []


def test_what_still_runs_is_not_announced(receiver: Receiver, secrets: Path) -> None:
    """Only an end is worth a message."""
    assert not deliver(_validation(receiver, status="queued"), secrets_dir=secrets, now=_NOW)
    assert receiver.received == []


@pytest.mark.parametrize("name", ["../team", ".", "..", "a/b", ".hidden"])
def test_a_secrets_name_cannot_leave_its_folder(secrets: Path, name: str) -> None:
    """A reference is a file's name and nothing else."""
    hook = Webhook(url="http://127.0.0.1/x", secret_ref=name)

    assert read_secret(hook, secrets / "inner") is None
