"""Runs whose last worker left, on every kind of server: ended after the grace, never too early."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import redis
from rq import Queue
from rq.serializers import JSONSerializer

from api_schemas.study import Choices, Study, StudyRequest
from api_schemas.validation import Validation, ValidationPlan, Webhook, WhenNoWorker
from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from service.queue import gpu_queue, heal, node_queue
from service.store import keys
from service.store.client import text
from service.store.decoding import UnreadableRecord
from service.store.studies import StudyStore
from service.store.validations import ValidationStore
from service.store.waiting import count_waiting, is_waiting, take_next
from service.store.workers import forget, register
from service.unserved import GRACE_S, end_unserved

_GPU = "NVIDIA L4"
_QUEUE = gpu_queue(_GPU)
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_HOOK = Webhook(url="https://hooks.example.org/x", secret_ref="team")  # noqa: S106  # a name


def _stores(client: redis.Redis) -> tuple[ValidationStore, StudyStore]:
    return ValidationStore(client, retention=None), StudyStore(client)


def _add(
    client: redis.Redis,
    identifier: str = "v1",
    *,
    when_no_worker: WhenNoWorker = "reject",
    devices: int = 1,
) -> ValidationStore:
    store = ValidationStore(client, retention=None)
    validation = Validation(
        id=identifier,
        recommendation_id="r1",
        mode="boot",
        plan=ValidationPlan(mode="boot", when_no_worker=when_no_worker, webhook=_HOOK),
        status="queued",
        stage="queued",
        progress=0.0,
        created_at="2026-01-02T03:04:05.000Z",
        queue=_QUEUE,
    )
    store.create(validation, devices=devices)
    return store


def _node(client: redis.Redis, *, devices: int = 1) -> None:
    register(
        client,
        WorkerNode(
            node="n",
            started_at="",
            heartbeat_at="",
            setpoint_version="0",
            driver="1",
            devices=[
                WorkerDevice(name=_GPU, uuid=f"GPU-{n}", memory_gib=24, free_gib=24)
                for n in range(devices)
            ],
            environments=[VllmEnvironment(version="0.33.0", path="/vllm", is_cpu=False)],
            queues=[node_queue("n"), _QUEUE],
        ),
    )


def _sweep(client: redis.Redis) -> list[str]:
    return end_unserved(client, *_stores(client), now=_NOW)


def _pass(client: redis.Redis, seconds: int) -> None:
    """Do what time does to what was seen."""
    for key in client.scan_iter(keys.unserved_since("*")):
        since = client.get(key)
        assert since is not None
        client.set(key, int(text(since)) - seconds, keepttl=True)


def test_a_run_whose_last_worker_left_fails_after_the_grace(client: redis.Redis) -> None:
    """It names stage and reason, its message is due, and nobody can take it any more."""
    store = _add(client)
    assert _sweep(client) == []

    _pass(client, GRACE_S - 60)
    early = _sweep(client)
    _pass(client, 60)
    ended = _sweep(client)

    assert (early, ended) == ([], ["v1"])
    found = store.find("v1")
    assert found is not None
    assert (found.status, found.stage, found.verdict) == ("failed", "no-worker", "inconclusive")
    assert found.failure is not None
    assert found.failure.stage == "no-worker"
    assert _QUEUE in found.failure.reason
    assert client.zrange(keys.due_webhooks(), 0, -1) == [b"v1"]
    assert take_next(client, _QUEUE, owner="n", most_devices=8) is None
    assert _sweep(client) == []


def test_a_study_whose_last_worker_left_fails_too(client: redis.Redis) -> None:
    """Validations and studies wait in one line."""
    request = StudyRequest(recommendation_id="r1", space={"max_num_seqs": Choices(values=[2, 4])})
    _, store = _stores(client)
    study = Study(
        id="s1",
        created_at="2026-01-02T03:04:05.000Z",
        request=request,
        status="queued",
        stage="queued",
        progress=0.0,
        queue=_QUEUE,
    )
    store.create(study)
    _sweep(client)
    _pass(client, GRACE_S)

    assert _sweep(client) == ["s1"]
    found = store.find("s1")
    assert found is not None
    assert found.failure is not None
    assert (found.status, found.failure.stage) == ("failed", "no-worker")
    assert store.unfinished() == []


def test_who_asked_to_wait_waits(client: redis.Redis) -> None:
    """A plan that waits is queued until a worker comes, however long that takes."""
    _add(client, when_no_worker="wait")
    _sweep(client)
    _pass(client, 10 * GRACE_S)

    assert _sweep(client) == []


def test_a_worker_that_comes_back_ends_the_grace(client: redis.Redis) -> None:
    """Absences do not add up: the grace begins anew when the worker leaves again."""
    _add(client)
    _sweep(client)
    _pass(client, GRACE_S - 1)

    _node(client)
    _sweep(client)
    forget(client, "n")
    _sweep(client)
    _pass(client, GRACE_S - 1)

    assert _sweep(client) == []


@pytest.mark.parametrize(("has", "ended"), [(2, ["v1"]), (4, [])])
def test_a_node_that_is_too_small_does_not_count(
    client: redis.Redis, *, has: int, ended: list[str]
) -> None:
    """What leases four devices waits in vain for a node with two."""
    _add(client, devices=4)
    _node(client, devices=has)
    _sweep(client)
    _pass(client, GRACE_S)

    assert _sweep(client) == ended


def test_a_time_in_which_nobody_looked_is_not_held_against_a_run(client: redis.Redis) -> None:
    """After all was down, workers get the grace to come back."""
    _add(client)
    _sweep(client)
    assert 0 < client.ttl(keys.unserved_since("v1")) <= keys.UNSERVED_LIFETIME_S
    client.delete(keys.unserved_since("v1"))  # what time does when nobody looks

    assert _sweep(client) == []


def test_a_run_that_was_taken_is_left_alone(client: redis.Redis) -> None:
    """Who works on it says how it ends, also when its node has left the list."""
    store = _add(client)
    _sweep(client)
    _pass(client, GRACE_S)

    assert take_next(client, _QUEUE, owner="n", most_devices=1) is not None

    assert _sweep(client) == []
    found = store.find("v1")
    assert found is not None
    assert found.status == "queued"


def test_what_nobody_can_read_ends_after_the_grace(client: redis.Redis) -> None:
    """A record of a release that is gone neither stops the sweep nor stays for ever."""
    store = _add(client, "v1", when_no_worker="wait")
    _add(client, "v2")
    client.hset(keys.validation("v1"), "mode", '"marathon"')
    with pytest.raises(UnreadableRecord):
        store.find("v1")
    assert heal(client, store, now=_NOW) == []
    _sweep(client)

    _pass(client, GRACE_S)

    assert sorted(_sweep(client)) == ["v1", "v2"]
    assert store.unfinished() == []
    assert client.hget(keys.validation("v1"), "status") == b'"failed"'
    assert [found.id for found in store.of_recommendation("r1")] == ["v2"]
    assert take_next(client, _QUEUE, owner="n", most_devices=8) is None


def test_what_somebody_works_on_is_left_alone_unread(client: redis.Redis) -> None:
    """While releases are mixed, the one that took a run can read it."""
    store = _add(client)
    client.hset(keys.validation("v1"), "mode", '"marathon"')
    assert take_next(client, _QUEUE, owner="n", most_devices=1) is not None
    _sweep(client)
    _pass(client, GRACE_S)

    assert _sweep(client) == []
    assert store.unfinished() == ["v1"]


def test_many_sweeps_at_once_queue_a_lost_run_once(client: redis.Redis) -> None:
    """The attempt grows by one, and the run waits once, whoever looked first."""
    store = _add(client, when_no_worker="wait")
    taken = take_next(client, _QUEUE, owner="n", most_devices=1)
    assert taken is not None
    client.delete(keys.validation_owner("v1"))  # what time does to the claim of a dead process

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: heal(client, store, now=_NOW), range(16)))

    validation = store.find("v1")
    assert validation is not None
    assert (validation.status, validation.attempt) == ("queued", 2)
    assert any(found)
    assert count_waiting(client, _QUEUE, devices=1) == 1
    assert take_next(client, _QUEUE, owner="n", most_devices=1) is not None
    assert take_next(client, _QUEUE, owner="n", most_devices=1) is None


def test_a_run_that_was_cancelled_between_two_attempts_is_ended(client: redis.Redis) -> None:
    """The request came while it changed hands: it does not wait for a worker to read it."""
    store = _add(client, when_no_worker="wait")
    store.request_cancel("v1")

    assert heal(client, store, now=_NOW) == ["v1"]

    validation = store.find("v1")
    assert validation is not None
    assert validation.status == "cancelled"
    assert take_next(client, _QUEUE, owner="n", most_devices=1) is None


def test_a_record_without_a_ticket_gets_one(client: redis.Redis) -> None:
    """Whoever stored it was killed before the queue knew: records come first."""
    store = _add(client, when_no_worker="wait")
    assert Queue(_QUEUE, connection=client, serializer=JSONSerializer).count == 0

    for _ in range(3):
        heal(client, store, now=_NOW)

    assert Queue(_QUEUE, connection=client, serializer=JSONSerializer).count == 1


def test_many_sweeps_at_once_end_a_run_once(client: redis.Redis) -> None:
    """Processes that look at the same time agree on who ends it."""
    store = _add(client)
    _sweep(client)
    _pass(client, GRACE_S)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: _sweep(client), range(16)))

    assert sorted(identifier for ended in found for identifier in ended) == ["v1"]
    assert not is_waiting(client, store.waiting_run("v1"))
    events = [event.data for event in store.events("v1", after="0")]
    assert sum(b'"failed"' in data for data in events) == 1
