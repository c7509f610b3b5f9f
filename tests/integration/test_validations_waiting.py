"""Validations before and without a worker, and what workers say of themselves."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import redis

from service.embedded import EmbeddedStore
from service.store import keys
from service.store.workers import forget, live_nodes, register
from service.sweep import Sweeper
from service.unserved import GRACE_S
from tests.integration.conftest import Client
from tests.integration.test_validations import finished, recommend, validate
from tests.integration.worker_process import WorkerProcess, until


def test_workers_say_what_they_have(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> None:
    """Node, devices, environments and queues are listed while the worker lives."""
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as worker:
        until(lambda: live_nodes(store_client), "the worker's registration")
        nodes = api.get("/workers").json()["items"]
        worker.terminate()

    assert [node["node"] for node in nodes] == ["node-a"]
    assert nodes[0]["environments"][0]["version"] == "0.32.0"
    assert nodes[0]["queues"] == ["validate.node.node-a", "validate.gpu.CPU"]
    until(lambda: not api.get("/workers").json()["items"], "the sign-off")


def test_without_a_worker_it_is_refused_or_waits(api: Client) -> None:
    """No live worker: 409 that says what to do, or 202 when the plan is patient."""
    recommendation = recommend(api, "tiny")

    refused = api.post(f"{recommendation}/validations", json={"mode": "boot"})
    patient = validate(api, recommendation, "boot", when_no_worker="wait")

    assert refused.status_code == 409
    assert refused.json()["code"] == "no-worker"
    assert "validate.gpu.CPU" in refused.json()["detail"]
    assert api.get(patient).json()["status"] == "queued"


def test_a_patient_plan_runs_once_a_worker_comes(
    api: Client, embedded_store: EmbeddedStore, tmp_path: Path
) -> None:
    """What was queued without a worker is done by the first one that has the hardware."""
    validation = validate(api, recommend(api, "tiny"), "boot", when_no_worker="wait")

    with WorkerProcess(embedded_store.url, tmp_path, node="late"):
        record = finished(api, validation)

    assert record["status"] == "succeeded"
    assert record["environment"]["node"] == "late"


def test_what_waits_for_a_worker_that_left_is_ended_by_the_api(
    api: Client, embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> None:
    """Its only node signs off before it takes the run: failed after the grace, and said why."""
    with WorkerProcess(embedded_store.url, tmp_path, node="node-a") as worker:
        until(lambda: live_nodes(store_client), "the worker's registration")
        node = live_nodes(store_client)[0]
        worker.terminate()
    register(store_client, node)
    validation = validate(api, recommend(api, "tiny"), "boot")
    forget(store_client, node.node)

    with Sweeper(store_client, retention=None, now=lambda: datetime.now(UTC), every_s=0.02):
        mark = keys.unserved_since(validation.rpartition("/")[2])
        until(lambda: store_client.exists(mark), "the first sweep")
        assert api.get(validation).json()["status"] == "queued"
        store_client.decrby(mark, GRACE_S)
        until(lambda: api.get(validation).json()["finished_at"], "the end")
    record = api.get(validation).json()

    assert (record["status"], record["failure"]["stage"]) == ("failed", "no-worker")
    assert "validate.gpu.CPU" in record["failure"]["reason"]
    assert "sweep" in {thread.name for thread in threading.enumerate()}  # the API's own


def test_a_queued_validation_is_cancelled_at_once(api: Client) -> None:
    """Without a process on it a cancelled one ends at once, and never runs."""
    validation = validate(api, recommend(api, "tiny"), when_no_worker="wait")

    answer = api.delete(validation)

    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")


def test_a_recommendation_of_another_release_is_read_as_far_as_it_goes(
    api: Client, store_client: redis.Redis
) -> None:
    """What a later release added is no obstacle to its proof; what is beyond reading says so."""
    address = recommend(api, "tiny")
    key = keys.recommendation(address.rpartition("/")[2])
    body = msgspec.json.decode(store_client.hget(key, "body"))
    body["request"]["workload"]["colour"] = "green"
    store_client.hset(key, "body", msgspec.json.encode(body))
    assert validate(api, address, "boot", when_no_worker="wait")

    body["request"]["hardware"] = "many"
    store_client.hset(key, "body", msgspec.json.encode(body))
    refused = api.post(f"{address}/validations", json={"mode": "boot", "when_no_worker": "wait"})

    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "another release" in refused.json()["detail"]
