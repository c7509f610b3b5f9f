"""Validations from the request to the result: API, queue, worker process and a fake `vllm`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from litestar.testing import TestClient

from service.app import create_app
from service.embedded import EmbeddedStore
from service.settings import Settings
from service.store import keys
from service.store.client import connect
from service.store.workers import live_nodes
from tests.integration.conftest import Client
from tests.integration.worker_process import WorkerProcess, kill, until
from workers.tiny_model import CONFIG

_ENDED = {"succeeded", "failed", "cancelled", "timed_out"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(str(tmp_path_factory.mktemp("store"))) as started:
        yield started


@pytest.fixture(scope="module")
def store_client(store: EmbeddedStore) -> Iterator[redis.Redis]:
    with connect(store.url, timeout_s=5.0) as client:
        yield client


@pytest.fixture(scope="module")
def worker(
    store: EmbeddedStore, store_client: redis.Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """Return one worker for all tests of this module: each has validations of its own."""
    with WorkerProcess(store.url, tmp_path_factory.mktemp("worker"), node="node-a") as started:
        until(lambda: live_nodes(store_client), "the worker's registration")
        yield started


@pytest.fixture(scope="module")
def api(store_client: redis.Redis, worker: WorkerProcess) -> Iterator[Client]:
    with TestClient(create_app(Settings(warm_up=False), store_client)) as client:
        yield client


def request_for(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    """Return a request for the tiny model on a CPU; the name tells the fake how to behave."""
    return {
        "model": {"id": name, "config": CONFIG},
        "hardware": {"gpu": "cpu", "host_memory_gib": 2},
        "workload": {
            "prompt_tokens": 64,
            "output_tokens": 16,
            "arrivals": {"kind": "closed_loop", "max_concurrency": 4},
        },
        "slo": {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 60000}]},
        "engine": {"version": "0.32.0"},
        "constraints": {"pin": {"kv_cache_memory_bytes": 64 * 2**20, "max_num_seqs": 64}},
    } | changes


def recommend(api: Client, name: str, **changes: Any) -> str:  # noqa: ANN401  # JSON
    """Return the address of a stored recommendation."""
    answer = api.post("/recommendations", json=request_for(name, **changes))
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


def validate(api: Client, recommendation: str, mode: str = "quick", **plan: Any) -> str:  # noqa: ANN401
    """Return the address of a new validation."""
    answer = api.post(f"{recommendation}/validations", json={"mode": mode} | plan)
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


def finished(api: Client, validation: str) -> dict[str, Any]:
    """Return a validation once it has ended."""
    for _ in range(20):
        record: dict[str, Any] = api.get(validation, params={"wait": 30}).json()
        if record["status"] in _ENDED:
            return record
    raise AssertionError(record)


def reached(api: Client, validation: str, status: str) -> None:
    """Return once a validation is in a state."""
    until(lambda: api.get(validation).json()["status"] == status, status)


def assert_nothing_left(worker: WorkerProcess, store_client: redis.Redis) -> None:
    """Assert that no process, lease or claim of a validation is left."""
    until(lambda: not worker.processes(), "the end of every process")
    until(lambda: not _held(store_client), "the end of every lease and claim")
    assert store_client.scard(keys.unfinished_validations()) == 0


def _held(store_client: redis.Redis) -> list[bytes]:
    return [key for key in store_client.scan_iter("*") if b":lease:" in key or b":owner" in key]


def test_a_recommendation_is_proven(api: Client, worker: WorkerProcess) -> None:
    """From one POST to figures beside the prediction, attached to the recommendation."""
    recommendation = recommend(api, "tiny")
    before = api.get(recommendation)
    validation = validate(api, recommendation)

    record = finished(api, validation)

    assert record["status"] == "succeeded", record
    assert record["verdict"] == "pass"
    assert record["environment"]["vllm_version"] == "0.32.0"
    assert record["startup"]["kv_cache_tokens"] == record["startup"]["predicted"]["kv_cache_tokens"]
    assert record["startup"]["error_percent"]["kv_cache_tokens"] == 0
    assert len(record["load_points"]) == 2
    for point in record["load_points"]:
        assert point["completed"] == point["num_requests"] >= 59
        assert point["preemptions"] == 0
        assert set(point["error_percent"]) >= {"ttft_ms_p50", "output_tokens_per_s"}
    assert record["slo"][0]["verdict"] == "met"
    assert record["command"][1:3] == ["serve", "tiny"]
    after = api.get(recommendation)
    assert after.json()["validations"][0]["url"] == validation
    assert after.json()["measured"]["verdict"] == "pass"
    assert after.headers["etag"] != before.headers["etag"]
    unchanged = set(before.json()) - {"validations", "measured"}
    assert all(after.json()[name] == before.json()[name] for name in unchanged)


@pytest.mark.parametrize("mode", ["quick", "compare", "soak"])
def test_what_is_set_beside_a_run_is_predicted_for_that_run(
    api: Client, worker: WorkerProcess, mode: str
) -> None:
    """A test that ends serves fewer requests per second than it is offered, also as predicted."""
    rate = 40.0
    load = {
        "prompt_tokens": 64,
        "output_tokens": 16,
        "arrivals": {"kind": "poisson", "requests_per_s": rate, "num_requests": 8},
    }
    record = finished(api, validate(api, recommend(api, "tiny", workload=load), mode))

    assert record["status"] == "succeeded", record
    for point in record["load_points"]:
        predicted = point["predicted"]
        assert set(point["error_percent"]) >= {"ttft_ms_p50", "output_tokens_per_s"}
        if mode != "soak":
            longest_s = 8 / rate + 2 * predicted["e2el_ms_p99"] / 1000
            assert 8 / longest_s < predicted["requests_per_s"] < 0.99 * rate


def test_events_tell_all_and_resume(api: Client, worker: WorkerProcess) -> None:
    """States and load points stream in order; with Last-Event-ID exactly the rest follows."""
    validation = validate(api, recommend(api, "tiny"))

    events = _events(api, validation)
    seen = [event["data"].get("status") for event in events if event["event"] == "status"]
    order = [status for status in dict.fromkeys(seen) if status]
    later = _events(api, validation, after=events[3]["id"])

    assert order == ["queued", "leasing", "starting", "warming_up", "measuring", "succeeded"]
    assert [event["event"] for event in events].count("load_point") == 2
    assert later == events[4:]


def _events(api: Client, validation: str, *, after: str | None = None) -> list[dict[str, Any]]:
    headers = {"Last-Event-ID": after} if after else {}
    found = []
    with api.stream("GET", f"{validation}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for block in answer.read().decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                found.append(fields | {"data": json.loads(fields["data"])})
    return found


def test_advice_and_proof_in_one_request(api: Client, worker: WorkerProcess) -> None:
    """A request with a validation plan answers with its link, and it runs."""
    answer = api.post("/recommendations", json=request_for("tiny", validation={"mode": "boot"}))

    assert answer.status_code == 201, answer.text
    link = answer.json()["validations"][0]
    assert finished(api, link["url"])["status"] == "succeeded"


def test_other_hardware_never_gives_a_pass(api: Client, worker: WorkerProcess) -> None:
    """A recommendation for a GPU that ran on a CPU says so, and proves nothing."""
    recommendation = recommend(
        api, "tiny", hardware={"gpu": "L4"}, constraints={"pin": {"max_model_len": 512}}
    )
    validation = validate(api, recommendation, queue={"gpu": "cpu"})

    record = finished(api, validation)

    assert record["status"] == "succeeded", record
    assert record["environment"]["as_asked"] is False
    assert record["verdict"] == "inconclusive"
    assert any("not on what was asked for" in note for note in record["notes"])


@pytest.mark.parametrize(
    ("name", "stage", "reason"),
    [
        ("fail-start", "start", "does_not_fit"),
        ("refuse", "load", "0 of"),
        ("truncate", "load", "output tokens came back"),
    ],
)
def test_a_failure_has_stage_reason_and_log(
    api: Client,
    worker: WorkerProcess,
    store_client: redis.Redis,
    *,
    name: str,
    stage: str,
    reason: str,
) -> None:
    """A server that does not start and a load that proves nothing are explained."""
    record = finished(api, validate(api, recommend(api, name)))

    assert (record["status"], record["verdict"]) == ("failed", "inconclusive")
    assert record["failure"]["stage"] == stage
    assert reason in record["failure"]["reason"]
    assert_nothing_left(worker, store_client)


def test_a_hung_server_is_given_up(
    api: Client, worker: WorkerProcess, store_client: redis.Redis
) -> None:
    """A server that never gets ready ends with the plan's minutes, and nothing is left of it."""
    record = finished(api, validate(api, recommend(api, "hang-start-child"), max_minutes=0.05))

    assert record["status"] == "timed_out"
    assert_nothing_left(worker, store_client)


@pytest.mark.parametrize(
    ("name", "status"),
    [("hang-start", "starting"), ("hang-warm-up", "warming_up"), ("hang-load", "measuring")],
)
def test_a_running_validation_can_be_cancelled(
    api: Client, worker: WorkerProcess, store_client: redis.Redis, name: str, status: str
) -> None:
    """Whether it starts, warms up or measures, it ends at once, whatever the server answers."""
    validation = validate(api, recommend(api, name))
    reached(api, validation, status)

    assert api.delete(validation).status_code == 202
    record = finished(api, validation)

    assert record["status"] == "cancelled"
    assert record["failure"] is None
    assert_nothing_left(worker, store_client)
    assert api.delete(validation).status_code == 202


def test_a_waiting_lease_can_be_cancelled(
    api: Client, worker: WorkerProcess, store_client: redis.Redis
) -> None:
    """One that waits for its device ends without ever having had it."""
    device = live_nodes(store_client)[0].devices[0].uuid
    store_client.set(keys.lease(device), "somebody-else", ex=600)
    validation = validate(api, recommend(api, "tiny"))
    reached(api, validation, "leasing")

    api.delete(validation)

    assert finished(api, validation)["status"] == "cancelled"
    assert store_client.getdel(keys.lease(device)) == b"somebody-else"


def test_a_finished_validation_cannot_be_cancelled(api: Client, worker: WorkerProcess) -> None:
    """Its record is final: 409."""
    validation = validate(api, recommend(api, "tiny"), "boot")
    finished(api, validation)

    assert api.delete(validation).status_code == 409


def test_a_killed_vllm_is_a_failure_under_load(
    api: Client, worker: WorkerProcess, store_client: redis.Redis
) -> None:
    """When the server is killed with `kill -9` the result is a failure, not a figure."""
    validation = validate(api, recommend(api, "hang-load"))
    reached(api, validation, "measuring")
    until(worker.servers, "the server")

    for pid in worker.servers():
        kill(pid)
    record = finished(api, validation)

    assert record["status"] == "failed"
    assert record["failure"]["stage"] == "load"
    assert record["load_points"] == []
    assert_nothing_left(worker, store_client)


_SMALL = {
    "kv_cache_memory_bytes": 512 * 1024,
    "block_size": 32,
    "max_num_seqs": 16,
    "max_model_len": 512,
}


def test_the_knee_is_found_and_confirmed_in_a_fresh_start(
    api: Client, worker: WorkerProcess
) -> None:
    """The walk begins at half of what fits, and what it suggests is not preempted."""
    workload = {
        "prompt_tokens": 64,
        "output_tokens": 64,
        "arrivals": {"kind": "closed_loop", "max_concurrency": 16},
    }
    recommendation = recommend(api, "tiny", workload=workload, constraints={"pin": _SMALL})

    record = finished(api, validate(api, recommendation, "knee"))

    assert record["status"] == "succeeded", record
    walked = [p for p in record["load_points"] if "knee" in p["label"]]
    assert walked[0]["offered"]["max_concurrency"] == 4  # half of 1024 tokens / 128 each
    assert any(point["preemptions"] for point in walked)
    assert record["knee"]["confirmed"] is True
    assert record["load_points"][-1]["preemptions"] == 0
    assert record["load_points"][-1]["offered"]["max_concurrency"] > record["knee"]["max_num_seqs"]
    assert record["suggested_config"]["max_num_seqs"] == record["knee"]["max_num_seqs"]
    assert api.get(recommendation).json()["measured"]["knee"]["confirmed"] is True


def test_defaults_and_recommendation_alternate(api: Client, worker: WorkerProcess) -> None:
    """Each side starts at least twice, in turn, and every figure has an interval."""
    record = finished(api, validate(api, recommend(api, "tiny"), "compare", max_minutes=1.0))

    assert record["status"] == "succeeded", record
    sides = [point["label"].split("-")[1] for point in record["load_points"]]
    assert sides[:4] == ["defaults", "recommended", "recommended", "defaults"]
    assert record["comparison"]["starts_each"] >= 2
    assert all(figure["interval"] for figure in record["comparison"]["figures"])
    assert record["verdict"] == "pass"


def test_a_soak_fills_the_pool_turn_after_turn(api: Client, worker: WorkerProcess) -> None:
    """Conversations grow to the longest length, more of them than the pool holds."""
    recommendation = recommend(api, "tiny", constraints={"pin": _SMALL})

    record = finished(api, validate(api, recommendation, "soak"))

    assert record["status"] == "succeeded", record
    (point,) = record["load_points"]
    assert point["num_requests"] == 3 * point["offered"]["max_concurrency"]
    assert point["offered"]["max_concurrency"] > record["startup"]["max_concurrency"]


def test_the_minutes_are_kept(api: Client, worker: WorkerProcess) -> None:
    """What was measured before the minutes ended is the result, and it says so."""
    record = finished(api, validate(api, recommend(api, "slow-load"), max_minutes=0.1))

    assert record["status"] in {"succeeded", "timed_out"}
    assert (record["status"] == "succeeded") == (len(record["load_points"]) > 0)
