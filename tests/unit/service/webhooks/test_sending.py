"""One try to deliver."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from service.webhooks.addresses import Resolve, networks_of, resolve_host
from service.webhooks.sending import Reach, Reply, post
from tests.unit.service.webhooks.receiver import Receiver, free_port, receiving

_LOOPBACK = Reach(networks=networks_of("127.0.0.0/8"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


def _post(
    url: str,
    *,
    reach: Reach = _LOOPBACK,
    resolve: Resolve = resolve_host,
    limit_s: float = 10.0,
) -> Reply:
    headers = {"webhook-id": "v1"}
    return asyncio.run(
        post(url, body="{}", headers=headers, reach=reach, resolve=resolve, limit_s=limit_s)
    )


def test_a_message_arrives_as_it_was_made(receiver: Receiver) -> None:
    """Body and headers are the sender's, and 2xx is a delivery."""
    reply = _post(receiver.url)

    ((headers, body),) = receiver.received
    assert (reply.outcome, reply.status_code) == ("delivered", 204)
    assert (headers["webhook-id"], body) == ("v1", "{}")
    assert reply.latency_ms > 0


def test_this_machine_is_not_reached_without_permission(receiver: Receiver) -> None:
    """A loopback address is refused before any connection."""
    assert _post(receiver.url, reach=Reach()).outcome == "address_refused"
    assert _post(f"http://localhost:{receiver.server_port}/", reach=Reach()).outcome in {
        "address_refused",
        "unreachable",
    }
    assert receiver.received == []


def test_a_name_that_changes_its_answer_leads_nowhere_else(receiver: Receiver) -> None:
    """The name is asked once, and the connection goes to the address that was judged."""
    answers = [["127.0.0.1"], ["127.0.0.2"], ["10.0.0.1"]]
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    url = f"http://hooks.example.org:{receiver.server_port}/hook"
    reply = _post(url, resolve=rebinding)

    assert reply.outcome == "delivered"
    assert asked == ["hooks.example.org"]
    assert receiver.received[0][0]["host"] == f"hooks.example.org:{receiver.server_port}"


def test_the_next_address_is_tried_when_one_does_not_answer(receiver: Receiver) -> None:
    """A host with several addresses is reached as long as one takes the connection."""

    async def two(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]  # the receiver listens on the second only

    url = f"http://hooks.example.org:{receiver.server_port}/hook"

    assert _post(url, resolve=two).outcome == "delivered"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver: Receiver, status: int) -> None:
    """A receiver cannot send a message elsewhere."""
    receiver.statuses, receiver.location = [status], "http://127.0.0.1:1/else"

    reply = _post(receiver.url)

    assert (reply.outcome, reply.status_code) == ("redirect_refused", status)
    assert len(receiver.received) == 1


def test_allowed_redirects_are_judged_anew(receiver: Receiver) -> None:
    """One that keeps the method leads on, but not to where a message may not go."""
    allowed = Reach(networks=_LOOPBACK.networks, redirects=True)
    receiver.statuses, receiver.location = [307, 204], "/other"

    followed = _post(receiver.url, reach=allowed)
    receiver.statuses, receiver.location = [308], "http://169.254.169.254/latest/meta-data"
    refused = _post(receiver.url, reach=allowed)
    receiver.statuses, receiver.location = [302], "/other"
    changed = _post(receiver.url, reach=allowed)
    receiver.statuses, receiver.location = [307] * 10, "/loop"
    endless = _post(receiver.url, reach=allowed)

    assert (followed.outcome, followed.status_code) == ("delivered", 204)
    assert refused.outcome == "address_refused"
    assert changed.outcome == "redirect_refused"
    assert endless.outcome == "redirect_refused"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "delivered"),
        (400, "refused"),
        (410, "gone"),
        (500, "refused"),
        (304, "redirect_refused"),
    ],
)
def test_the_answer_decides(receiver: Receiver, status: int, outcome: str) -> None:
    """Only 2xx is a delivery; 410 says that nobody wants it any more."""
    receiver.statuses = [status]

    reply = _post(receiver.url)

    assert (reply.outcome, reply.status_code) == (outcome, status)


def test_retry_after_is_heard(receiver: Receiver) -> None:
    """A receiver that asks for time gets it."""
    receiver.statuses, receiver.retry_after = [503], "120"

    assert _post(receiver.url).retry_after_s == 120


def test_a_receiver_that_never_answers_is_left(receiver: Receiver) -> None:
    """A try has an end, whatever the receiver does."""
    receiver.hold.clear()

    assert _post(receiver.url, limit_s=0.2).outcome == "timed_out"


@pytest.mark.parametrize("url", ["http://[::", "http://", "http://exa mple/", "ftp://127.0.0.1/"])
def test_what_is_no_address_is_unreachable(url: str) -> None:
    """A broken address is an outcome, not an exception."""
    assert _post(url).outcome == "unreachable"


def test_nobody_there_is_unreachable() -> None:
    """A refused connection and an unknown name are outcomes."""

    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(host)

    assert _post(f"http://127.0.0.1:{free_port()}/").outcome == "unreachable"
    assert _post("https://hooks.example.org/", resolve=unknown).outcome == "unreachable"
