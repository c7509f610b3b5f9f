"""Validations whose worker, store or API is killed: nothing is lost, nothing is left."""

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import redis

from service.embedded import EmbeddedStore
from service.store import keys
from service.store.validations import ValidationStore
from service.store.workers import live_nodes, register
from tests.integration.conftest import Client
from tests.integration.service_process import ServiceProcess
from tests.integration.test_validations import (
    assert_nothing_left,
    finished,
    reached,
    recommend,
    request_for,
    validate,
)
from tests.integration.worker_process import Gate, WorkerProcess, kill, let_claims_run_out, until

_VALIDATIONS = 20
Nodes = Callable[[str], WorkerProcess]


@pytest.fixture
def nodes(store_client: redis.Redis, embedded_store: EmbeddedStore, tmp_path: Path) -> Nodes:
    def start(name: str) -> WorkerProcess:
        return WorkerProcess(embedded_store.url, tmp_path, node=name)

    return start


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_a_killed_worker_leaves_no_process_and_its_run_is_done_again(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """After `kill -9` under load everything it started ends, and the next worker starts over."""
    with nodes("node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "hang-load-child"))
        reached(api, validation, "measuring")
        worker.kill()
        until(lambda: not worker.processes(), "the end of every process")
        first = api.get(validation).json()
        let_claims_run_out(store_client)
        worker.start()
        until(lambda: api.get(validation).json()["attempt"] == 2, "the second attempt")
        reached(api, validation, "measuring")
        api.delete(validation)
        record = finished(api, validation)
        assert_nothing_left(worker, store_client)

    assert first["status"] == "measuring"
    assert any("Started again" in note for note in record["notes"])


def test_a_run_that_is_lost_twice_fails(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """What kills its worker again and again is not tried for ever: failed, stage lost."""
    with nodes("node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "hang-load"))
        for attempt in (1, 2):
            until(
                lambda attempt=attempt: api.get(validation).json()["attempt"] == attempt, "attempt"
            )
            reached(api, validation, "measuring")
            worker.kill()
            let_claims_run_out(store_client)
            worker.start()
        record = finished(api, validation)

    assert record["status"] == "failed"
    assert record["failure"]["stage"] == "lost"


def test_what_a_killed_supervisor_left_is_swept(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """Even when worker and supervisors are killed, the next start ends what still runs."""
    with nodes("node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "hang-load-child"))
        reached(api, validation, "measuring")
        supervisors = [pid for pid in worker.processes() if pid not in worker.servers()]
        worker.process.kill()
        for pid in supervisors:
            kill(pid)
        worker.kill()
        let_claims_run_out(store_client)
        api.delete(validation)

        worker.start()

        assert_nothing_left(worker, store_client)
        assert finished(api, validation)["status"] == "cancelled"


def test_a_worker_that_is_asked_to_end_gives_its_run_back(
    api: Client, store_client: redis.Redis, nodes: Nodes, gate: Gate
) -> None:
    """On SIGTERM the run goes back to the queue at once, and another node takes it."""
    with nodes("node-a") as first:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "held-load"), model_path=gate.model_path)
        reached(api, validation, "measuring")

        first.terminate()

        assert not first.processes()
        assert api.get(validation).json()["status"] == "queued"
    gate.open()
    with nodes("node-b"):
        record = finished(api, validation)

    assert record["status"] == "succeeded", record
    assert record["environment"]["node"] == "node-b"


def test_a_store_that_restarts_loses_nothing(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, nodes: Nodes, gate: Gate
) -> None:
    """The store is killed while a server is loaded; the result is there all the same."""
    with nodes("node-a") as worker:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "held-load"), model_path=gate.model_path)
        reached(api, validation, "measuring")
        pid = embedded_store.pid
        assert pid is not None

        kill(pid)
        embedded_store.wait_for_restart(after=pid, timeout_s=300)
        gate.open()
        record = finished(api, validation)

        assert record["status"] == "succeeded", record
        assert len(record["load_points"]) == 2
        assert_nothing_left(worker, store_client)


def test_a_process_that_comes_back_too_late_disturbs_nobody(
    api: Client, store_client: redis.Redis, nodes: Nodes, gate: Gate
) -> None:
    """Stopped under load until its run was given to another, it ends and leaves that one alone."""
    with nodes("node-a") as first:
        until(lambda: live_nodes(store_client), "registration")
        validation = validate(api, recommend(api, "held-load"), model_path=gate.model_path)
        reached(api, validation, "measuring")
        (queues,) = _children(first.process.pid)
        (job,) = _children(queues)
        os.kill(job, signal.SIGSTOP)
        let_claims_run_out(store_client)
        with nodes("node-b") as second:
            until(lambda: api.get(validation).json()["attempt"] == 2, "the second attempt")
            reached(api, validation, "measuring")

            os.kill(job, signal.SIGCONT)
            until(lambda: "run_taken_over" in first.log, "the end of the first attempt")
            until(lambda: not first.processes(), "the end of its processes")
            assert ValidationStore(store_client, retention=None).is_claimed(
                validation.rpartition("/")[2]
            )
            gate.open()
            record = finished(api, validation)
            assert_nothing_left(second, store_client)

    assert (record["status"], record["attempt"]) == ("succeeded", 2), record
    assert record["environment"]["node"] == "node-b"
    assert len(record["load_points"]) == 2


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_job_that_the_queue_lost_is_queued_again(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """A record without a job, as a crash between the two writes leaves it, is run."""
    validation = validate(api, recommend(api, "tiny"), "boot", when_no_worker="wait")
    for key in list(store_client.scan_iter("rq:*")):
        store_client.delete(key)

    with nodes("node-a"):
        record = finished(api, validation)

    assert record["status"] == "succeeded"


def test_many_validations_on_three_nodes_never_share_a_device(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """Three nodes want one device for twenty validations: all end, and no two at once had it."""
    recommendation = recommend(api, "tiny")
    waiting = [
        validate(api, recommendation, "boot", when_no_worker="wait") for _ in range(_VALIDATIONS)
    ]

    with nodes("node-a"), nodes("node-b"), nodes("node-c"):
        records = [finished(api, validation) for validation in waiting]

    assert Counter(record["status"] for record in records) == {"succeeded": _VALIDATIONS}
    assert all(record["attempt"] == 1 for record in records)
    spans = sorted(_holding(store_client, record["id"]) for record in records)
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
    assert not [key for key in store_client.scan_iter("*") if b":lease:" in key]


def _holding(store_client: redis.Redis, identifier: str) -> tuple[int, int]:
    """Return when a run had its device, by the store's own clock: from its start to its end."""
    entries = store_client.xrange(keys.validation_events(identifier))
    times = [int(entry_id.split(b"-")[0]) for entry_id, fields in entries]
    starting = next(
        time
        for time, (_, fields) in zip(times, entries, strict=True)
        if b"starting" in fields[b"data"]
    )
    return starting, times[-1]


def test_one_node_keeps_the_order_up_to_its_processes(
    api: Client, store_client: redis.Redis, nodes: Nodes, tmp_path: Path
) -> None:
    """Three processes of one node run twelve validations one by one, oldest first.

    No run is overtaken by more than those that were taken from the queue with it.
    """
    recommendation = recommend(api, "tiny")
    waiting = [validate(api, recommendation, "boot", when_no_worker="wait") for _ in range(12)]

    with nodes("same"), nodes("same"), nodes("same"):
        records = [finished(api, validation) for validation in waiting]

    spans = {record["id"]: _holding(store_client, record["id"]) for record in records}
    started = sorted(spans, key=lambda identifier: spans[identifier][0])
    created = [record["id"] for record in records]
    assert all(
        earlier[1] <= later[0] for earlier, later in itertools.pairwise(sorted(spans.values()))
    )
    assert all(abs(started.index(name) - created.index(name)) <= 2 for name in created)


def test_a_killed_api_does_not_disturb_a_run(
    *,
    embedded_store: EmbeddedStore,
    store_client: redis.Redis,
    nodes: Nodes,
    gate: Gate,
    tmp_path: Path,
) -> None:
    """The API is a reader of the record: it may be killed and come back while a job runs."""
    with (
        ServiceProcess(tmp_path / "api", REDIS_URL=embedded_store.url) as service,
        nodes("node-a") as worker,
    ):
        until(lambda: live_nodes(store_client), "registration")
        made = service.client.post("/recommendations", json=request_for("held-load"))
        queued = service.client.post(
            f"{made.headers['location']}/validations",
            json={"mode": "quick", "model_path": gate.model_path},
        )
        address = queued.headers["location"]
        until(lambda: service.client.get(address).json()["status"] == "measuring", "measuring")

        service.stop(signal.SIGKILL)
        gate.open()
        service.start()
        until(lambda: service.client.get(address).json()["finished_at"], "the end")
        record = service.client.get(address).json()
        assert_nothing_left(worker, store_client)

    assert record["status"] == "succeeded"
    assert len(record["load_points"]) == 2


def test_a_wrong_clock_does_not_hide_a_node(
    api: Client, store_client: redis.Redis, nodes: Nodes
) -> None:
    """Whether a node lives is told by the store's clock, whatever the node's own clock says."""
    with nodes("node-a"):
        until(lambda: live_nodes(store_client), "registration")
        node = live_nodes(store_client)[0]
        register(store_client, msgspec.structs.replace(node, node="skewed", heartbeat_at="1970"))

        names = {item["node"] for item in api.get("/workers").json()["items"]}
        ttl = int(str(store_client.ttl(keys.worker("skewed"))))

    assert names == {"node-a", "skewed"}
    assert 0 < ttl <= keys.WORKER_LIFETIME_S
