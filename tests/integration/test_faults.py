"""Faults in the middle of a run, each with a real worker: nothing lost or left, and said why."""

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from litestar.testing import TestClient

from service.app import create_app
from service.embedded import EmbeddedStore
from service.queue import MAX_ATTEMPTS, heal
from service.settings import Settings
from service.store import keys
from service.store.client import binary, connect
from service.store.validations import ValidationStore
from service.store.workers import live_nodes
from tests.integration.conftest import Client
from tests.integration.test_validations import (
    assert_nothing_left,
    finished,
    reached,
    recommend,
    validate,
)
from tests.integration.worker_process import Gate, WorkerProcess, until
from tests.unit.service.webhooks.receiver import Receiver, free_port, receiving

_LOADED = ("hang-load", "measuring")


@pytest.fixture
def worker(
    embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> Iterator[WorkerProcess]:
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as started:
        until(lambda: live_nodes(store_client), "registration")
        yield started


@pytest.mark.parametrize(("name", "status"), [("hang-warm-up", "warming_up"), _LOADED])
def test_a_run_can_be_cancelled_while_its_server_is_stopped(
    api: Client, worker: WorkerProcess, store_client: redis.Redis, *, name: str, status: str
) -> None:
    """A server that answers nothing, not even a signal, holds up nobody: cancelled, not failed.

    That it is being cancelled is said before the server has ended.
    """
    validation = validate(api, recommend(api, name))
    reached(api, validation, status)
    for pid in worker.servers():
        os.kill(pid, signal.SIGSTOP)

    assert api.delete(validation).status_code == 202
    record = finished(api, validation)

    assert (record["status"], record["failure"], record["load_points"]) == ("cancelled", None, [])
    events = ValidationStore(store_client, retention=None).events(record["id"], after="0")
    assert [b'"cancelling"' in binary(event.data) for event in events[-2:]] == [True, False]
    assert_nothing_left(worker, store_client)


@pytest.mark.slow
def test_a_server_that_hangs_under_load_is_given_up(
    api: Client, worker: WorkerProcess, store_client: redis.Redis
) -> None:
    """One that is stopped in the middle of a load answers nothing: failed, with the stage."""
    validation = validate(api, recommend(api, "hang-load"))
    reached(api, validation, "measuring")
    until(lambda: any(_is_client(pid) for pid in worker.processes()), "the client")

    for pid in worker.servers():
        os.kill(pid, signal.SIGSTOP)  # metrics were read once before the client was started
    record = finished(api, validation)

    assert record["status"] == "failed"
    assert record["failure"]["stage"] == "load"
    assert record["failure"]["reason"] == "the server hangs"
    assert_nothing_left(worker, store_client)


def _is_client(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"bench" in words


def test_a_work_folder_that_cannot_be_written_is_told(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> None:
    """The run fails with stage and reason, no lease is left, and the worker goes on."""
    (tmp_path / "work").write_text("a file stands in the way")
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        failed = finished(api, validate(api, recommend(api, "tiny"), "boot"))
        (tmp_path / "work").unlink()
        succeeded = finished(api, validate(api, recommend(api, "tiny"), "boot"))
        assert_nothing_left(worker, store_client)

    assert (failed["status"], failed["failure"]["stage"]) == ("failed", "load")
    assert "work folder cannot be written" in failed["failure"]["reason"]
    assert succeeded["status"] == "succeeded"


def test_a_recommendation_that_is_removed_meanwhile_is_told(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> None:
    """Removed while it waits, its proof fails and says why; removed under load, it is finished."""
    gate = Gate(tmp_path)
    waiting_for = recommend(api, "tiny")
    waiting = validate(api, waiting_for, "boot", when_no_worker="wait")
    assert api.delete(waiting_for).status_code == 204
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as worker:
        failed = finished(api, waiting)
        loaded_for = recommend(api, "held-load")
        loaded = validate(api, loaded_for, model_path=gate.model_path)
        reached(api, loaded, "measuring")
        assert api.delete(loaded_for).status_code == 204
        gate.open()
        record = finished(api, loaded)
        assert_nothing_left(worker, store_client)

    assert (failed["status"], failed["failure"]["stage"]) == ("failed", "lease")
    assert failed["failure"]["reason"] == "the recommendation was removed"
    assert (record["status"], len(record["load_points"])) == ("succeeded", 2)
    assert api.get(loaded_for).status_code == 404


def test_a_queue_that_forgets_its_jobs_under_load_loses_nothing(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> None:
    """All that RQ keeps is gone while a run is loaded and another waits: both end, each once."""
    gate = Gate(tmp_path)
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        loaded = validate(api, recommend(api, "held-load"), model_path=gate.model_path)
        reached(api, loaded, "measuring")
        waiting = validate(api, recommend(api, "tiny"), "boot")

        store_client.delete(*store_client.scan_iter("rq:*"))
        gate.open()
        records = [finished(api, address) for address in (loaded, waiting)]
        assert_nothing_left(worker, store_client)

    assert [record["status"] for record in records] == ["succeeded", "succeeded"]
    assert [record["attempt"] for record in records] == [1, 1]


class RedisServer:
    """Debian's Redis with an append-only file, that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        """Start it on what it has written down."""
        binary = shutil.which("redis-server")
        assert binary is not None
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(binary, "--port", str(self._port), "--bind", "127.0.0.1", "--save", ""),
                    *("--appendonly", "yes", "--appendfsync", "always"),
                ],
                cwd=self._folder,
                stdout=log,
            )
        with connect(self.url, timeout_s=1.0) as client:
            until(lambda: _answers(client), "redis-server")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.wait(timeout=30)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(folder)
    yield server
    server.kill()


def test_a_redis_that_is_killed_and_comes_back_loses_nothing(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """It is away for a while in the middle of a load; the result is there all the same."""
    gate = Gate(tmp_path)
    with (
        connect(redis_server.url, timeout_s=2.0) as client,
        TestClient(create_app(Settings(warm_up=False), client)) as api,
        WorkerProcess(redis_server.url, tmp_path, node="node-r") as worker,
    ):
        until(lambda: live_nodes(client), "registration")
        validation = validate(api, recommend(api, "held-load"), model_path=gate.model_path)
        reached(api, validation, "measuring")

        redis_server.kill()
        gate.open()
        until(lambda: "store_away" in worker.log, "a write that must wait for the store")
        redis_server.start()
        record = finished(api, validation)

        assert record["status"] == "succeeded", record
        assert (record["attempt"], len(record["load_points"])) == (1, 2)
        assert_nothing_left(worker, client)
        until(lambda: live_nodes(client), "the next heartbeat")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def _hooked(api: Client, recommendation: str, receiver: Receiver) -> str:
    hook = {"url": receiver.url, "secret_ref": "team"}
    return validate(api, recommendation, "boot", when_no_worker="wait", webhook=hook)


def _lose_until_it_fails(api: Client, store_client: redis.Redis, validation: str) -> None:
    """Do what workers find when a run's process dies at every attempt."""
    store = ValidationStore(store_client, retention=None)
    identifier = validation.rpartition("/")[2]
    for attempt in range(1, MAX_ATTEMPTS + 1):
        store.change(identifier, attempt=attempt, to="leasing")
        heal(store_client, store, now=datetime.now(UTC))
    assert api.get(validation).json()["failure"]["stage"] == "lost"


def test_every_end_is_told_once(
    *,
    api: Client,
    embedded_store: EmbeddedStore,
    store_client: redis.Redis,
    receiver: Receiver,
    tmp_path: Path,
) -> None:
    """Succeeded, failed, cancelled in the queue, lost: whoever ends it, one message goes out."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "team").write_text("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3")
    cancelled, lost = (_hooked(api, recommend(api, "tiny"), receiver) for _ in range(2))
    api.delete(cancelled)
    _lose_until_it_fails(api, store_client, lost)
    succeeded = _hooked(api, recommend(api, "tiny"), receiver)
    failed = _hooked(api, recommend(api, "fail-start"), receiver)

    with WorkerProcess(
        embedded_store.url,
        tmp_path,
        node="node-a",
        SETPOINT_WEBHOOK_SECRETS_DIR=str(tmp_path / "secrets"),
        SETPOINT_WEBHOOK_NETWORKS="127.0.0.0/8",
    ):
        for address in (succeeded, failed):
            finished(api, address)
        until(lambda: len(receiver.received) >= 4, "four messages")
        until(lambda: not store_client.zcard(keys.due_webhooks()), "the end of all deliveries")

    told = Counter(headers["webhook-id"] for headers, _ in receiver.received)
    identifiers = {address.rpartition("/")[2] for address in (cancelled, lost, succeeded, failed)}
    assert told == dict.fromkeys(identifiers, 1)
    kinds = sorted(body.split('"type":"')[1].split('"')[0] for _, body in receiver.received)
    assert kinds == [
        *("validation.cancelled", "validation.failed", "validation.failed"),
        "validation.succeeded",
    ]


def test_nobody_ends_a_run_twice(api: Client, store_client: redis.Redis) -> None:
    """What has ended stays as it ended, and its message is due once, whoever comes late."""
    plan = {"when_no_worker": "wait", "webhook": {"url": "https://example.com", "secret_ref": "s"}}
    validation = validate(api, recommend(api, "tiny"), "boot", **plan)
    store = ValidationStore(store_client, retention=None)
    api.delete(validation)
    store_client.delete(keys.due_webhooks())

    api.delete(validation)
    healed = heal(store_client, store, now=datetime.now(UTC))

    assert healed == []
    assert store_client.zcard(keys.due_webhooks()) == 0
    assert api.get(validation).json()["status"] == "cancelled"
