"""Webhooks from the end of a validation to the receiver, with the log and replays."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from standardwebhooks import Webhook as Verifier

from api_schemas.access import Scope
from api_schemas.study import Choices, Study, StudyRequest
from api_schemas.validation import Validation, ValidationPlan, ValidationStatus, Webhook
from api_schemas.webhook import DeliveryAttempt
from service.identifiers import time_ordered_id, timestamp
from service.store import keys
from service.store.api_keys import ApiKeyStore
from service.store.studies import StudyStore
from service.store.validations import Change, ValidationStore
from service.store.webhooks import MOST_ATTEMPTS_KEPT, WebhookStore
from service.studies import end_study
from service.webhooks.addresses import networks_of
from service.webhooks.dispatcher import Dispatcher
from service.webhooks.schedule import PAUSES_S
from service.webhooks.sending import Reach
from tests.integration.conftest import Client
from tests.integration.test_validations import request_for
from tests.unit.service.webhooks.receiver import Receiver, free_port, receiving

_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at = _START

    def __call__(self) -> datetime:
        """Return the time."""
        return self.at

    def forward(self, seconds: float) -> None:
        """Move on."""
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "team").write_text(_SECRET)
    return tmp_path


def _dispatcher(
    store_client: redis.Redis, secrets: Path | None, clock: Clock, *, reach: Reach | None = None
) -> Dispatcher:
    loopback = Reach(networks=networks_of("127.0.0.0/8"))
    return Dispatcher(
        WebhookStore(store_client, retention=None),
        secrets_dir=secrets,
        reach=reach or loopback,
        now=clock,
    )


def _ended(
    store_client: redis.Redis,
    url: str | None,
    *,
    number: int = 0,
    tenant: str | None = None,
    status: ValidationStatus = "cancelled",
) -> str:
    """Return the id of a validation that has just ended."""
    at = _START + timedelta(milliseconds=number)
    identifier = time_ordered_id(at, entropy=number.to_bytes(10, "big"))
    hook = None if url is None else Webhook(url=url, secret_ref="team")  # noqa: S106  # a name
    store = ValidationStore(store_client, retention=timedelta(days=1), tenant=tenant)
    store.create(
        Validation(
            id=identifier,
            recommendation_id="r1",
            mode="boot",
            plan=ValidationPlan(mode="boot", webhook=hook),
            status="queued",
            stage="queued",
            progress=0.0,
            created_at=timestamp(at),
            queue="validate.gpu.cpu",
        )
    )
    moved = store.change(
        identifier, attempt=1, to=status, stage=status, progress=1.0, finished_at=timestamp(at)
    )
    assert moved is Change.DONE
    return identifier


def _log(api: Client, **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # query values
    answer = api.get("/webhook-deliveries", params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.parametrize("status", ["cancelled", "failed", "timed_out"])
def test_whoever_ends_a_validation_it_is_told(
    *,
    api: Client,
    store_client: redis.Redis,
    receiver: Receiver,
    secrets: Path,
    clock: Clock,
    status: ValidationStatus,
) -> None:
    """The message is due with the end itself, is signed, and its log says how it went."""
    identifier = _ended(store_client, receiver.url, status=status)
    (before,) = _log(api)

    tried = _dispatcher(store_client, secrets, clock).deliver_due()

    ((headers, body),) = receiver.received
    message = Verifier(_SECRET)
    assert tried == 1
    assert headers["webhook-id"] == identifier
    assert f'"validation.{status}"' in body
    assert message.sign(identifier, _START, body) == headers["webhook-signature"]
    assert (before["status"], before["attempts"]) == ("pending", [])
    (after,) = _log(api, validation_id=identifier)
    assert (after["status"], after["next_attempt_at"]) == ("delivered", None)
    (attempt,) = after["attempts"]
    assert (attempt["outcome"], attempt["status_code"]) == ("delivered", 204)
    assert attempt["started_at"] == timestamp(_START)
    assert attempt["latency_ms"] > 0


def _ended_study(store_client: redis.Redis, url: str, *, tenant: str | None = None) -> str:
    """Return the id of a study that has just ended."""
    identifier = time_ordered_id(_START, entropy=b"study-ends")
    request = StudyRequest(
        recommendation_id="r1",
        space={"max_num_seqs": Choices(values=[2, 4])},
        webhook=Webhook(url=url, secret_ref="team"),  # noqa: S106  # a name
    )
    store = StudyStore(store_client, tenant=tenant)
    study = Study(
        id=identifier,
        created_at=timestamp(_START),
        request=request,
        status="queued",
        stage="queued",
        progress=0.0,
        queue="validate.gpu.cpu",
    )
    store.create(study)
    end_study(store, study, now=_START)
    return identifier


def test_the_end_of_a_study_is_told_like_that_of_a_validation(
    *,
    api: Client,
    store_client: redis.Redis,
    receiver: Receiver,
    secrets: Path,
    clock: Clock,
) -> None:
    """Signed, once, with its log; what was sent can be sent again, and each finds its own."""
    study = _ended_study(store_client, receiver.url)
    validation = _ended(store_client, receiver.url)
    dispatcher = _dispatcher(store_client, secrets, clock)

    dispatcher.deliver_due()
    (kept,) = _log(api, study_id=study)
    replayed = api.post(f"/webhook-deliveries/{study}/replay")
    dispatcher.deliver_due()

    told = [headers["webhook-id"] for headers, _ in receiver.received]
    assert sorted(told) == sorted([study, study, validation])
    headers, body = next(item for item in receiver.received if item[0]["webhook-id"] == study)
    assert '"type":"study.cancelled"' in body
    assert Verifier(_SECRET).sign(study, _START, body) == headers["webhook-signature"]
    assert (kept["event"], kept["study_id"], kept["status"]) == (
        "study.cancelled",
        study,
        "delivered",
    )
    assert "validation_id" in kept
    assert replayed.status_code == 202
    assert _log(api, validation_id=study) == _log(api, study_id=validation) == []
    assert {item["id"] for item in _log(api)} == {study, validation}


def test_the_deliveries_of_a_study_are_its_tenants(
    *, api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """Another tenant sees neither the study nor its message."""
    _ended_study(store_client, receiver.url, tenant="others")

    assert _dispatcher(store_client, secrets, clock).deliver_due() == 1
    assert _log(api) == []


_PRIVATE = {"url": "http://169.254.169.254/latest", "secret_ref": "team"}


def test_a_receiver_inside_is_refused_when_it_is_named(api: Client) -> None:
    """A private address or no host at all: no run is queued that could never tell its end."""
    made = api.post("/recommendations", json=request_for("tiny"))
    identifier = made.json()["id"]
    plan = {"mode": "boot", "when_no_worker": "wait", "webhook": _PRIVATE}
    study = {
        "recommendation_id": identifier,
        "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4]}},
        "when_no_worker": "wait",
        "webhook": _PRIVATE,
    }
    nowhere = plan | {"webhook": {"url": "http://?x", "secret_ref": "team"}}

    refused = [
        api.post(f"/recommendations/{identifier}/validations", json=plan),
        api.post(f"/recommendations/{identifier}/validations", json=nowhere),
        api.post("/studies", json=study),
        api.post("/recommendations", json=request_for("tiny", validation=plan)),
    ]

    assert [answer.status_code for answer in refused] == [400] * 4
    places = [answer.json()["errors"][0]["pointer"] for answer in refused]
    assert places == ["/webhook/url"] * 3 + ["/validation/webhook/url"]
    assert "169.254.169.254" in refused[0].json()["detail"]
    assert api.get(f"/recommendations/{identifier}").json()["validations"] == []
    assert api.get("/studies").json()["items"] == []


def test_a_receiver_that_hangs_holds_up_nobody_else(
    *,
    api: Client,
    store_client: redis.Redis,
    receiver: Receiver,
    secrets: Path,
    clock: Clock,
) -> None:
    """Of many messages to it two are tried, the rest is put off untried; others get theirs."""
    with receiving() as hanging:
        hanging.hold.clear()
        stuck = [_ended(store_client, hanging.url, number=number) for number in range(70)]
        told = _ended(store_client, receiver.url, number=70)
        dispatcher = Dispatcher(
            WebhookStore(store_client, retention=None),
            secrets_dir=secrets,
            reach=Reach(networks=networks_of("127.0.0.0/8")),
            now=clock,
            limit_s=0.3,
        )

        first, second = dispatcher.deliver_due(), dispatcher.deliver_due()

        assert (first, second) == (2, 3)
        assert [headers["webhook-id"] for headers, _ in receiver.received] == [told]
        tried = {item["id"]: item["attempts"] for item in _log(api, limit=200)}
        assert sum(bool(tried[identifier]) for identifier in stuck) == 4
        hanging.hold.set()
        for _ in range(100):
            clock.forward(31)
            dispatcher.deliver_due()
    assert {item["status"] for item in _log(api, limit=200)} == {"delivered"}


def test_without_a_webhook_nothing_is_sent(
    api: Client, store_client: redis.Redis, secrets: Path, clock: Clock
) -> None:
    """Who did not ask is not told."""
    _ended(store_client, None)

    assert _dispatcher(store_client, secrets, clock).deliver_due() == 0
    assert _log(api) == []


def test_retries_back_off_and_survive_a_restart(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """Each process goes on where the last one ended: nothing is remembered but in the store."""
    receiver.statuses = [503, 500]
    _ended(store_client, receiver.url)

    for pause in (0.0, *PAUSES_S[:2]):
        clock.forward(pause * 0.99)
        early = _dispatcher(store_client, secrets, clock).deliver_due()
        clock.forward(pause * 0.15)
        late = _dispatcher(store_client, secrets, clock).deliver_due()
        assert (early, late) == ((1, 0) if pause == 0 else (0, 1))

    (delivery,) = _log(api)
    assert delivery["status"] == "delivered"
    assert [item["status_code"] for item in delivery["attempts"]] == [503, 500, 204]
    assert [item["next_attempt_at"] is None for item in delivery["attempts"]] == [
        False,
        False,
        True,
    ]
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len({body for _, body in receiver.received}) == 1


def test_a_process_that_died_while_sending_leaves_the_message_to_another(
    store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """What was leased and never logged is tried again when the lease has ended."""
    _ended(store_client, receiver.url)
    store = WebhookStore(store_client, retention=None)
    assert store.claim(now=clock(), lease=timedelta(seconds=60), limit=8)

    at_once = _dispatcher(store_client, secrets, clock).deliver_due()
    clock.forward(61)
    later = _dispatcher(store_client, secrets, clock).deliver_due()

    assert (at_once, later) == (0, 1)
    assert len(receiver.received) == 1


def test_what_stays_refused_is_given_up_and_can_be_replayed(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """After all its tries a message waits for somebody to ask; then it is sent with the same id."""
    receiver.statuses = [500] * (len(PAUSES_S) + 1)
    identifier = _ended(store_client, receiver.url)
    for _ in range(20):
        _dispatcher(store_client, secrets, clock).deliver_due()
        clock.forward(100_000)
    (given_up,) = _log(api)

    replayed = api.post(f"/webhook-deliveries/{identifier}/replay")
    _dispatcher(store_client, secrets, clock).deliver_due()

    assert (given_up["status"], len(given_up["attempts"])) == ("failed", len(PAUSES_S) + 1)
    assert (replayed.status_code, replayed.json()["status"]) == (202, "pending")
    (delivery,) = _log(api)
    assert (delivery["status"], delivery["replays"]) == ("delivered", 1)
    assert [item["number"] for item in delivery["attempts"]] == [*range(1, len(PAUSES_S) + 3)]
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1


def test_a_replay_while_a_try_is_under_way_is_not_lost(
    store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """The try is logged, and the message is still due."""
    identifier = _ended(store_client, receiver.url)
    store = WebhookStore(store_client, retention=None)
    (claimed,) = store.claim(now=clock(), lease=timedelta(seconds=60), limit=8)
    store.replay(identifier)

    dispatcher = _dispatcher(store_client, secrets, clock)
    assert dispatcher.deliver_due() == 1
    assert not store.record(
        claimed,
        store.find(identifier).attempts[0],  # type: ignore[union-attr]
        status="failed",
        next_attempt=None,
    )

    delivery = store.find(identifier)
    assert delivery is not None
    assert (delivery.status, len(delivery.attempts)) == ("delivered", 2)


def test_tries_are_counted_by_outcome(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """The metrics of every process show what any of them sent."""
    receiver.statuses = [503, 204]
    for number in range(2):
        _ended(store_client, receiver.url, number=number)

    _dispatcher(store_client, secrets, clock).deliver_due()

    text = api.get("/metrics").text
    assert 'setpoint_webhook_attempts_total{outcome="delivered"} 1.0' in text
    assert 'setpoint_webhook_attempts_total{outcome="refused"} 1.0' in text
    assert "setpoint_webhooks_pending 1.0" in text


def test_where_a_message_must_not_go_it_does_not(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """A private address is refused as long as no setting allows it, and once is enough."""
    _ended(store_client, receiver.url)

    _dispatcher(store_client, secrets, clock, reach=Reach()).deliver_due()

    (delivery,) = _log(api)
    assert delivery["status"] == "failed"
    assert delivery["attempts"][0]["outcome"] == "address_refused"
    assert receiver.received == []


def test_a_missing_secret_is_said_and_waited_for(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """Nothing is sent unsigned; when the operator brings the secret, it goes out."""
    (secrets / "team").rename(secrets / "aside")
    _ended(store_client, receiver.url)
    _dispatcher(store_client, secrets, clock).deliver_due()
    (waiting,) = _log(api)

    (secrets / "aside").rename(secrets / "team")
    clock.forward(PAUSES_S[0] * 1.2)
    _dispatcher(store_client, secrets, clock).deliver_due()

    assert waiting["status"] == "pending"
    assert waiting["attempts"][0]["outcome"] == "secret_missing"
    assert _log(api)[0]["status"] == "delivered"


def test_what_the_message_is_about_may_be_gone(
    api: Client, store_client: redis.Redis, receiver: Receiver, secrets: Path, clock: Clock
) -> None:
    """Without its record there is nothing to tell."""
    identifier = _ended(store_client, receiver.url)
    assert _log(api)
    store_client.delete(keys.validation(identifier))

    _dispatcher(store_client, secrets, clock).deliver_due()

    assert _log(api)[0]["attempts"][0]["outcome"] == "record_missing"


def test_a_record_that_ran_out_leaves_no_work(
    api: Client, store_client: redis.Redis, secrets: Path, clock: Clock
) -> None:
    """Whatever the retention took away is neither listed nor tried."""
    tried, untried = (_ended(store_client, "http://127.0.0.1:1/", number=n) for n in range(2))
    assert len(_log(api)) == 2
    store_client.delete(keys.webhook_delivery(tried), keys.validation(tried))
    store_client.delete(keys.webhook_delivery(untried), keys.validation(untried))

    assert _log(api) == []
    assert _dispatcher(store_client, secrets, clock).deliver_due() == 0
    assert WebhookStore(store_client, retention=None).pending() == 0


def test_the_log_has_pages(api: Client, store_client: redis.Redis) -> None:
    """Cursors lead through all deliveries, newest first."""
    url = f"http://127.0.0.1:{free_port()}/"
    made = [_ended(store_client, url, number=number) for number in range(5)]

    first = api.get("/webhook-deliveries", params={"limit": 2})
    rest = api.get(first.links["next"]["url"])
    last = api.get(rest.links["next"]["url"])

    seen = [item["id"] for answer in (first, rest, last) for item in answer.json()["items"]]
    assert seen == made[::-1]
    assert last.json()["next_cursor"] is None


def test_a_bounded_number_of_tries_is_kept(
    store_client: redis.Redis, receiver: Receiver, clock: Clock
) -> None:
    """However often a message is replayed, its log does not grow without end."""
    identifier = _ended(store_client, receiver.url)
    store = WebhookStore(store_client, retention=None)
    for number in range(1, MOST_ATTEMPTS_KEPT + 4):
        (claimed,) = store.claim(now=clock(), lease=timedelta(seconds=1), limit=1)
        attempt = DeliveryAttempt(
            number=number, started_at=timestamp(clock()), latency_ms=1.0, outcome="unreachable"
        )
        store.record(claimed, attempt, status="failed", next_attempt=None)
        store.replay(identifier)

    delivery = store.find(identifier)

    assert delivery is not None
    assert len(delivery.attempts) == MOST_ATTEMPTS_KEPT
    assert delivery.attempts[-1].number == MOST_ATTEMPTS_KEPT + 3


def test_a_tenant_sees_and_replays_its_own(
    api: Client, store_client: redis.Redis, receiver: Receiver
) -> None:
    """Deliveries of another tenant do not exist."""
    theirs = _ended(store_client, receiver.url, number=1, tenant="team-b")
    mine = _ended(store_client, receiver.url, number=2, tenant="team-a")
    headers = _key(store_client, tenant="team-a", scopes=["read", "validate"])

    listed = api.get("/webhook-deliveries", headers=headers).json()["items"]
    filtered = api.get(f"/webhook-deliveries?validation_id={theirs}", headers=headers)
    replayed = api.post(f"/webhook-deliveries/{theirs}/replay", headers=headers)
    own = api.post(f"/webhook-deliveries/{mine}/replay", headers=headers)

    assert [item["id"] for item in listed] == [mine]
    assert filtered.json()["items"] == []
    assert (replayed.status_code, own.status_code) == (404, 202)
    reader = _key(store_client, tenant="team-a", scopes=["read"])
    assert api.post(f"/webhook-deliveries/{mine}/replay", headers=reader).status_code == 403


def _key(store_client: redis.Redis, *, tenant: str, scopes: list[Scope]) -> dict[str, str]:
    _, secret = ApiKeyStore(store_client).create(
        name="k", tenant=tenant, scopes=scopes, created_by="t", at=_START, expires_at=None
    )
    return {"Authorization": f"Bearer {secret.text}"}
