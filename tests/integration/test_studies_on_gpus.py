"""Studies on a node with GPUs: what a study leases, what a trial sees, and whose processes run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from service.embedded import EmbeddedStore
from service.store import keys, leases
from service.store.workers import live_nodes
from tests.integration.conftest import Client
from tests.integration.test_validations import recommend
from tests.integration.worker_process import Gate, WorkerProcess, gpu_settings, until

pytestmark = pytest.mark.slow
_Nodes = Callable[[str], WorkerProcess]
_SIZES = [1, 2, 4]


@pytest.fixture
def gpus(tmp_path: Path) -> list[str]:
    """Return UUIDs that no other test of this machine uses: the fake driver looks at all of it."""
    return [f"GPU-{tmp_path.name}-{number}" for number in range(4)]


@pytest.fixture
def nodes(embedded_store: EmbeddedStore, tmp_path: Path, gpus: list[str]) -> _Nodes:
    def start(folder: str) -> WorkerProcess:
        (tmp_path / folder).mkdir()
        settings = gpu_settings(tmp_path, gpus)
        return WorkerProcess(embedded_store.url, tmp_path / folder, node="gpu-node", **settings)

    return start


@pytest.fixture
def worker(nodes: _Nodes, store_client: redis.Redis) -> Iterator[WorkerProcess]:
    with nodes("first") as started:
        until(lambda: live_nodes(store_client), "the worker's registration")
        yield started


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def _study(api: Client, gate: Gate) -> str:
    recommendation = recommend(
        api,
        "held-load",
        hardware={"gpu": "L4", "gpus_per_node": 1},
        constraints={"pin": {"kv_cache_memory_bytes": 64 * 2**20, "max_num_seqs": 64}},
    )
    made = api.post(
        "/studies",
        json={
            "recommendation_id": recommendation.rpartition("/")[2],
            "space": {"tensor_parallel_size": {"kind": "choices", "values": _SIZES}},
            "max_trials": 4,
            "max_minutes": 30,
            "trial_minutes": 1,
            "model_path": gate.model_path,
        },
    )
    assert made.status_code == 202, made.text
    return str(made.headers["location"])


def _variables(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def _running(api: Client, address: str) -> dict[str, Any] | None:
    """Return the trial that is measured, None between two."""
    trials = api.get(address).json()["trials"]
    return next((trial for trial in trials if trial["state"] == "running"), None)


def _number(api: Client, address: str) -> int | None:
    trial = _running(api, address)
    return None if trial is None else int(trial["number"])


def test_every_trial_sees_as_many_gpus_as_it_takes(
    api: Client, store_client: redis.Redis, worker: WorkerProcess, gate: Gate, gpus: list[str]
) -> None:
    """The study holds all four from its start; a trial's server is pinned to its own number."""
    address = _study(api, gate)
    seen: dict[int, int] = {}
    while not api.get(address).json()["finished_at"]:
        until(lambda: worker.servers() or api.get(address).json()["finished_at"], "a trial")
        trial = _running(api, address)
        if trial is None or not worker.servers():
            continue
        size = trial["config"].get("tensor_parallel_size") or 1
        visible = _variables(worker.servers()[0])["CUDA_VISIBLE_DEVICES"].split(",")
        seen[size] = len(visible)
        assert set(visible) <= set(gpus)
        assert leases.held(store_client, gpus) == set(gpus)
        gate.let_one_through()
        until(
            lambda n=trial["number"]: (_running(api, address) or {}).get("number") != n, "its end"
        )

    record = api.get(address).json()
    assert record["status"] == "succeeded", (record, worker.log[-3000:])
    complete = [trial for trial in record["trials"] if trial["state"] == "complete"]
    assert {trial["config"].get("tensor_parallel_size") or 1 for trial in complete} == set(_SIZES)
    assert seen == {size: size for size in seen}
    assert leases.held(store_client, gpus) == set()


def test_a_runs_own_processes_are_not_foreign(
    api: Client, store_client: redis.Redis, worker: WorkerProcess, gate: Gate
) -> None:
    """While a study computes on its GPUs, the node's list shows no stranger on them."""
    address = _study(api, gate)
    until(lambda: _running(api, address) and worker.servers(), "the first trial")
    before = live_nodes(store_client)[0].heartbeat_at

    until(lambda: live_nodes(store_client)[0].heartbeat_at != before, "the next heartbeat")
    during = live_nodes(store_client)[0]
    still = worker.servers()
    api.delete(address)

    assert still
    assert [device.foreign_processes for device in during.devices] == [0, 0, 0, 0]


def test_another_process_of_the_node_leaves_a_study_alone(
    api: Client, store_client: redis.Redis, worker: WorkerProcess, nodes: _Nodes, gate: Gate
) -> None:
    """At its start it ends what nobody works on, and nothing of a study that goes on."""
    address = _study(api, gate)
    until(lambda: _running(api, address) and worker.servers(), "the first trial")
    before = worker.servers()

    with nodes("second") as second:
        until(lambda: "node_described" in second.log, "its start")
        gate.open()
        until(lambda: api.get(address).json()["finished_at"], "the end of the study")

    record = api.get(address).json()
    assert before
    assert (record["status"], record["attempt"]) == ("succeeded", 1), worker.log[-3000:]
    assert not [t for t in record["trials"] if t["state"] == "failed"], record["trials"]
    assert "leftover_ended" not in second.log
    assert store_client.scard(keys.unfinished_studies()) == 0


def test_a_worker_says_which_vllm_it_found(worker: WorkerProcess) -> None:
    """Its log names releases and places, so that a missing one is found without a failed run."""
    assert "node_described" in worker.log
    assert "0.32.0 " in worker.log
