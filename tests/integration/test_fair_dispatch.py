"""Several worker processes and tenants: no GPU twice, nobody is put off, no node takes too much."""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis
from litestar.testing import TestClient

from service.app import create_app
from service.settings import Settings
from service.store import keys
from service.store.api_keys import ApiKeyStore
from service.store.client import connect
from service.store.workers import live_nodes
from tests.contract import conftest as stores
from tests.integration.conftest import Client
from tests.integration.test_validations import finished, recommend, validate
from tests.integration.worker_process import WorkerProcess, gpu_settings, until

store_url = stores.store_url
_GPUS = tuple(f"GPU-{number}" for number in range(4))
_QUEUED = {"ants": 12, "bees": 5, "cats": 3}
"""By tenant how many validations it queues, one tenant after the other: twenty in all."""
_DEVICES = {"ants": 1, "bees": 2, "cats": 1}
Tenants = dict[str, Client]
Nodes = Callable[..., WorkerProcess]


@pytest.fixture
def store_client(store_url: str) -> Iterator[redis.Redis]:
    with connect(store_url, timeout_s=5.0) as client:
        client.flushdb()
        yield client


@pytest.fixture
def tenants(store_client: redis.Redis) -> Iterator[Tenants]:
    """Yield a client of the API for each tenant, with a key of its own."""
    with ExitStack() as stack:
        found = {}
        for tenant in _QUEUED:
            _, secret = ApiKeyStore(store_client).create(
                name="test",
                tenant=tenant,
                scopes=["read", "recommend", "validate"],
                created_by="test",
                at=datetime.now(UTC),
            )
            app = create_app(Settings(warm_up=False), store_client)
            found[tenant] = stack.enter_context(TestClient(app))
            found[tenant].headers["Authorization"] = f"Bearer {secret.text}"
        yield found


@pytest.fixture
def node(store_url: str, tmp_path: Path) -> Nodes:
    """Return a function that makes a worker process of a node, by default of one with four GPUs."""

    def make(number: int, name: str = "gpu-node", gpus: Sequence[str] = _GPUS) -> WorkerProcess:
        folder = tmp_path / f"process-{number}"
        folder.mkdir()
        return WorkerProcess(
            store_url,
            folder,
            node=name,
            SETPOINT_WORKER_BENCHMARKS="4",
            SETPOINT_LOG_FORMAT="json",
            **gpu_settings(tmp_path, gpus),
        )

    return make


def _queue_all(tenants: Tenants) -> dict[str, list[str]]:
    """Return by tenant the addresses of its validations, all of which wait for a worker."""
    waiting = {}
    for tenant, api in tenants.items():
        recommendation = _recommend(api, devices=_DEVICES[tenant])
        waiting[tenant] = _wait(api, recommendation, number=_QUEUED[tenant])
    return waiting


def _recommend(api: Client, *, devices: int) -> str:
    pin = {"kv_cache_memory_bytes": 64 * 2**20, "tensor_parallel_size": devices}
    return recommend(
        api,
        "tiny",
        hardware={"gpu": "L4", "gpus_per_node": 4},
        constraints={"pin": pin | {"max_num_seqs": 64}},
    )


def _wait(api: Client, recommendation: str, *, number: int) -> list[str]:
    return [validate(api, recommendation, "boot", when_no_worker="wait") for _ in range(number)]


def test_twenty_validations_share_four_gpus_fairly(
    tenants: Tenants, store_client: redis.Redis, node: Nodes
) -> None:
    """All end, no GPU is held twice at a time, each tenant keeps its order, and all take turns."""
    waiting = _queue_all(tenants)
    for uuid in _GPUS:
        store_client.set(keys.lease(uuid), "until all processes are there", ex=3600)

    with ExitStack() as stack:
        workers = [stack.enter_context(node(number)) for number in range(3)]
        until(lambda: all("run_taken" in worker.log for worker in workers), "all processes")
        store_client.delete(*map(keys.lease, _GPUS))
        records = {
            tenant: [finished(tenants[tenant], address) for address in addresses]
            for tenant, addresses in waiting.items()
        }
        logs = [worker.log for worker in workers]
        until(lambda: not _leases(store_client), "the end of every lease")

    every = [record for found in records.values() for record in found]
    assert {record["status"] for record in every} == {"succeeded"}, every
    assert all(record["attempt"] == 1 for record in every)
    _assert_no_gpu_was_shared(store_client, every)
    taken = _turns(logs)
    for tenant, found in records.items():
        assert [name for owner, name in taken if owner == tenant] == [r["id"] for r in found]
        assert all(len(r["environment"]["gpus"]) == _DEVICES[tenant] for r in found)
    _assert_turns_were_taken([owner for owner, _ in taken])


def test_a_small_node_leaves_large_runs_to_a_large_one(
    tenants: Tenants, store_client: redis.Redis, node: Nodes
) -> None:
    """It does what it can, and what it cannot keeps its place for who can serve it."""
    ants, bees = tenants["ants"], tenants["bees"]
    pair = _recommend(ants, devices=2)
    with node(0, "small", ["GPU-s"]) as small:
        until(lambda: live_nodes(store_client), "the small node")
        refused = ants.post(f"{pair}/validations", json={"mode": "boot"})
        large = [*_wait(ants, pair, number=2), *_wait(bees, _recommend(bees, devices=4), number=1)]
        little = _wait(ants, _recommend(ants, devices=1), number=3)
        done = [finished(ants, address) for address in little]
        owners = [ants, ants, bees]
        waits = [api.get(address).json() for api, address in zip(owners, large, strict=True)]
        with node(1, "large") as other:
            records = [finished(api, address) for api, address in zip(owners, large, strict=True)]
            until(lambda: not _leases(store_client), "the end of every lease")
        logs = [small.log, other.log]

    assert (refused.status_code, refused.json()["code"]) == (409, "no-worker")
    assert {(r["status"], r["environment"]["node"]) for r in done} == {("succeeded", "small")}
    assert {(r["status"], r["attempt"]) for r in waits} == {("queued", 1)}
    assert {(r["status"], r["environment"]["node"]) for r in records} == {("succeeded", "large")}
    assert [len(r["environment"]["gpus"]) for r in records] == [2, 2, 4]
    assert "nothing_to_take" not in small.log
    turns = [name for _, name in _turns(logs)]
    first, second, third = (record["id"] for record in records)
    assert turns == [*(record["id"] for record in done), third, first, second]


def _leases(store_client: redis.Redis) -> list[bytes]:
    return [key for key in store_client.scan_iter("*") if b":lease:" in key or b":owner" in key]


def _turns(logs: list[str]) -> list[tuple[str, str]]:
    """Return tenant and validation in the order in which the workers took them."""
    lines = [json.loads(line) for log in logs for line in log.splitlines() if line[:1] == "{"]
    taken = sorted(
        (line["turn"], line["tenant"], line["id"]) for line in lines if line["event"] == "run_taken"
    )
    assert [turn for turn, _, _ in taken] == list(range(1, len(taken) + 1))
    return [(tenant, identifier) for _, tenant, identifier in taken]


def _assert_turns_were_taken(owners: list[str]) -> None:
    """Assert that between two turns of who waits every other tenant had at most one."""
    for place, owner in enumerate(owners):
        earlier = [turn for turn in range(place) if owners[turn] == owner]
        between = owners[earlier[-1] + 1 : place] if earlier else owners[:place]
        assert len(between) == len(set(between)), (place, owners)
    assert sorted(owners[:3]) == sorted(_QUEUED)


def _assert_no_gpu_was_shared(store_client: redis.Redis, records: list[dict[str, Any]]) -> None:
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        for gpu in record["environment"]["gpus"]:
            spans[gpu["uuid"]].append(_held(store_client, record["id"]))
    assert set(spans) <= set(_GPUS)
    assert len(spans) > 1, "all ran on one GPU"
    for uuid, held in spans.items():
        for earlier, later in itertools.pairwise(sorted(held)):
            assert earlier[1] <= later[0], (uuid, earlier, later)


def _held(store_client: redis.Redis, identifier: str) -> tuple[int, int]:
    """Return when a run had its devices at least, by the store's clock: from its start to its end.

    The lease is taken before the server is started and given back after the last word.
    """
    entries: Any = store_client.xrange(keys.validation_events(identifier))
    times = [int(entry_id.split(b"-")[0]) for entry_id, _ in entries]
    starts = [
        time
        for time, (_, fields) in zip(times, entries, strict=True)
        if b"starting" in fields[b"data"]
    ]
    return starts[0], times[-1]
