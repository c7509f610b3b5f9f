"""Studies from the request to the result: API, queue, worker process and a fake `vllm`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from service.embedded import EmbeddedStore
from service.queue import gpu_queue, node_queue
from service.store.studies import StudyStore
from service.store.workers import live_nodes, register
from tests.integration.conftest import Client
from tests.integration.test_validations import recommend
from tests.integration.worker_process import Gate, WorkerProcess, let_claims_run_out, until

_ENDED = {"succeeded", "failed", "cancelled", "timed_out"}


@pytest.fixture
def worker(
    embedded_store: EmbeddedStore, store_client: redis.Redis, tmp_path: Path
) -> Iterator[WorkerProcess]:
    with WorkerProcess(embedded_store.url, tmp_path, node="node-s") as started:
        until(lambda: live_nodes(store_client), "the worker's registration")
        yield started


def _study(api: Client, **changes: Any) -> Any:  # noqa: ANN401  # JSON in, a response out
    address = recommend(api, changes.pop("model", "tiny"))
    body = {
        "recommendation_id": address.rpartition("/")[2],
        "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4, 8, 64]}},
        "max_trials": 3,
        "max_minutes": 10,
        "trial_minutes": 1,
    }
    return api.post("/studies", json=body | changes)


def _ended(api: Client, address: str) -> dict[str, Any]:
    until(lambda: api.get(address).json()["status"] in _ENDED, "the end of the study")
    record: dict[str, Any] = api.get(address).json()
    return record


@pytest.mark.slow
def test_a_study_measures_and_names_the_best(api: Client, worker: WorkerProcess) -> None:
    """Every trial is measured in a server of its own; the best one meets the targets."""
    made = _study(api)
    assert made.status_code == 202, made.text

    record = _ended(api, made.headers["location"])

    assert record["status"] == "succeeded", (record, worker.log[-3000:])
    assert [trial["origin"] for trial in record["trials"][:2]] == ["baseline", "recommended"]
    complete = [trial for trial in record["trials"] if trial["state"] == "complete"]
    assert len(complete) == 3
    assert record["baseline"] == 0
    best = next(trial for trial in record["trials"] if trial["number"] == record["best"])
    assert best["meets"]
    rates = [trial["measured"]["output_tokens_per_s"] for trial in complete if trial["meets"]]
    assert best["measured"]["output_tokens_per_s"] == max(rates)
    assert record["best"] in record["pareto"]
    measured = api.get("/measurements?tool=validation").json()["items"]
    assert len(measured) == 3
    assert all(item["cpu"] for item in measured)
    assert api.get("/studies").json()["items"][0]["trials"] == len(record["trials"])


@pytest.mark.slow
def test_a_killed_study_goes_on_where_it_was(
    api: Client, worker: WorkerProcess, store_client: redis.Redis, tmp_path: Path
) -> None:
    """After `kill -9` of the worker a new one keeps the trials that are done."""
    gate = Gate(tmp_path)
    gate.let_one_through()
    made = _study(api, model="held-load", model_path=gate.model_path, max_trials=4)
    address = made.headers["location"]
    until(lambda: _complete(api, address) == 1, "the first trial")

    worker.kill()
    before = api.get(address).json()["trials"]
    until(lambda: not worker.processes(), "the end of every process")
    let_claims_run_out(store_client)
    gate.open()
    worker.start()
    record = _ended(api, address)

    assert record["status"] == "succeeded", record
    assert record["attempt"] == 2
    assert len([trial for trial in record["trials"] if trial["state"] == "complete"]) == 4
    kept = {trial["number"]: trial for trial in record["trials"]}
    assert all(kept[t["number"]] == t for t in before if t["state"] == "complete")


def _complete(api: Client, address: str) -> int:
    trials = api.get(address).json()["trials"]
    return sum(trial["state"] == "complete" for trial in trials)


@pytest.mark.parametrize(
    ("changes", "status", "pointer"),
    [
        ({"space": {"no_such": {"kind": "choices", "values": [1]}}}, 400, "/space/no_such"),
        ({"space": {}}, 400, "/space"),
        ({"recommendation_id": "none"}, 404, None),
        ({}, 409, None),
    ],
)
def test_a_study_that_cannot_run_is_refused(
    api: Client, changes: dict[str, Any], status: int, pointer: str | None
) -> None:
    """A setting that nobody knows, no recommendation, or no worker: nothing is queued."""
    refused = _study(api, **changes)

    assert refused.status_code == status, refused.text
    assert pointer in [error["pointer"] for error in refused.json()["errors"]] or pointer is None
    assert api.get("/studies").json()["items"] == []


def test_a_waiting_study_can_be_cancelled(api: Client) -> None:
    """Without a worker it waits when it may; cancelled it stays cancelled."""
    address = _study(api, when_no_worker="wait").headers["location"]
    assert api.get(address).headers["retry-after"]

    cancelled = api.delete(address)

    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelled")
    assert api.delete(address).status_code == 202
    assert api.get(address).json()["status"] == "cancelled"
    assert api.get("/studies/none").status_code == 404


_LAYOUTS = {"tensor_parallel_size": {"kind": "choices", "values": [1, 2, 4]}}


def _gpu_node(count: int) -> WorkerNode:
    gpu = "NVIDIA H100 80GB HBM3"
    return WorkerNode(
        node="gpus",
        started_at="",
        heartbeat_at="",
        setpoint_version="0",
        driver="1",
        devices=[
            WorkerDevice(name=gpu, uuid=f"GPU-{n}", memory_gib=80, free_gib=80)
            for n in range(count)
        ],
        environments=[VllmEnvironment(version="0.33.0", path="/vllm", is_cpu=False)],
        queues=[node_queue("gpus"), gpu_queue(gpu)],
    )


def _study_of_layouts(api: Client, **changes: Any) -> Any:  # noqa: ANN401  # JSON in, a response out
    made = api.post(
        "/recommendations",
        json={
            "model": {"id": "Qwen/Qwen3-8B"},
            "hardware": {"gpu": "H100-SXM5-80GB"},
            "workload": {"preset": "chat"},
        },
    )
    identifier = made.headers["location"].rpartition("/")[2]
    body = {"recommendation_id": identifier, "space": _LAYOUTS, "max_trials": 3}
    return api.post("/studies", json=body | changes)


def test_a_study_over_layouts_waits_for_a_node_that_can_hold_the_largest(
    api: Client, store_client: redis.Redis
) -> None:
    """It leases at its start what its largest trial takes, not what the recommendation takes."""
    register(store_client, _gpu_node(4))

    made = _study_of_layouts(api)

    assert made.status_code == 202, made.text
    run = StudyStore(store_client).waiting_run(made.json()["id"])
    assert run.devices == 4


def test_a_study_over_layouts_that_no_node_can_hold_is_refused(
    api: Client, store_client: redis.Redis
) -> None:
    """The refusal says how many devices the space takes, and why; patience may still wait."""
    register(store_client, _gpu_node(2))

    refused = _study_of_layouts(api)
    patient = _study_of_layouts(api, when_no_worker="wait")

    assert (refused.status_code, refused.json()["code"]) == (409, "no-worker")
    assert "fewer than 4" in refused.json()["detail"]
    assert "tensor_parallel_size 4" in refused.json()["detail"]
    assert patient.status_code == 202
