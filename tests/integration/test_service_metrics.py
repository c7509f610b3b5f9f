"""Metrics that all processes share: each shows what any of them took in."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from litestar.testing import TestClient
from prometheus_client.parser import text_string_to_metric_families

from api_schemas.worker import WorkerNode
from service.api import examples
from service.app import create_app
from service.settings import Settings
from service.store.client import connect
from service.store.prediction_errors import MOST_GROUPS, ErrorGroup, PredictionErrorStore
from service.store.workers import register
from tests.integration.conftest import Client
from tests.integration.test_validations import request_for

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def other(store_client: redis.Redis) -> Iterator[Client]:
    """Return a client of another process's application on the same store."""
    with TestClient(create_app(Settings(warm_up=False), store_client)) as client:
        yield client


def _metrics(api: Client) -> Samples:
    answer = api.get("/metrics")
    assert answer.status_code == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def _named(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a name by the values of their labels, in the labels' order."""
    return {
        tuple(value for _, value in labels): number
        for (found, labels), number in samples.items()
        if found == name
    }


def _measurement(**changes: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    body: dict[str, Any] = msgspec.to_builtins(examples.measurement_request())
    return body | changes


def test_a_measurement_tells_how_far_off_the_prediction_was(api: Client, other: Client) -> None:
    """One process takes it in, the other shows it, by GPU, model family, figure and basis."""
    made = api.post("/measurements", json=_measurement())
    assert made.status_code == 201, made.text

    samples = _metrics(other)

    counts = _named(samples, "setpoint_prediction_error_ratio_count")
    assert counts
    assert {labels[0] for labels in counts} == {"modelled"}
    assert all(value == 1 for value in counts.values())
    (gpu, family), *more = {(labels[1], labels[3]) for labels in counts}
    assert not more
    assert gpu == made.json()["items"][0]["hardware"]["gpu"]
    assert family.endswith("ForCausalLM")
    sums = _named(samples, "setpoint_prediction_error_ratio_sum")
    bias = _named(samples, "setpoint_prediction_bias_ratio")
    assert all(sums[labels] == pytest.approx(abs(bias[labels])) for labels in counts)
    assert _metrics(api)[("setpoint_store_up", ())] == 1


def test_a_short_test_is_not_judged_as_a_service_that_goes_on(api: Client) -> None:
    """Of eight requests the tail is a large part: the throughput that is expected is that run's."""
    body = _measurement()
    body["workload"] |= {"arrivals": {"kind": "poisson", "requests_per_s": 4.0}}
    run = body["workload"]["arrivals"] | {"num_requests": 8}
    estimate = {name: body[name] for name in ("model", "hardware", "engine")}
    estimate["workload"] = body["workload"] | {"arrivals": run}
    expected = api.post("/estimates", json=estimate).json()["performance"]
    rate = expected["requests_per_s"]
    body["observed"] = {"requests_per_s": rate, "completed": 8, "ttft_ms": {"p50": 50.0}}

    made = api.post("/measurements", json=body)

    assert made.status_code == 201, made.text
    assert rate < 3.9
    bias = _named(_metrics(api), "setpoint_prediction_bias_ratio")
    (found,) = [value for labels, value in bias.items() if "requests_per_s" in labels]
    assert found == pytest.approx(0.0, abs=1e-3)


def test_the_same_measurement_counts_once(api: Client) -> None:
    """What is stored once is judged once."""
    for _ in range(3):
        assert api.post("/measurements", json=_measurement()).status_code in {200, 201}

    counts = _named(_metrics(api), "setpoint_prediction_error_ratio_count")

    assert set(counts.values()) == {1}


def test_a_gpu_of_the_callers_own_has_no_label_of_its_own(api: Client) -> None:
    """Names that callers make up neither become labels nor are shown to others."""
    hardware = {
        "gpu": "secret-project-gpu",
        "spec": {
            "memory_gib": 80,
            "bandwidth_gb_s": 3000,
            "bf16_tflops": 900,
            "compute_capability": "9.0",
        },
    }
    made = api.post("/measurements", json=_measurement(hardware=hardware))
    assert made.status_code == 201, made.text

    text = api.get("/metrics").text

    assert 'gpu="other"' in text
    assert "secret-project" not in text


def test_the_number_of_labels_is_bounded(store_client: redis.Redis, api: Client) -> None:
    """Beyond the bound everything is counted together, and nothing is lost."""
    store = PredictionErrorStore(store_client)
    for number in range(MOST_GROUPS + 50):
        group = ErrorGroup(gpu=f"gpu-{number}", model_family="F", basis="modelled")
        store.add(group, {"ttft_ms_mean": 0.1})

    counts = _named(_metrics(api), "setpoint_prediction_error_ratio_count")

    assert len(counts) == MOST_GROUPS + 1
    assert sum(counts.values()) == MOST_GROUPS + 50
    assert counts["modelled", "other", "ttft_ms_mean", "other"] == 50


def test_errors_fall_into_buckets_by_their_size(store_client: redis.Redis, api: Client) -> None:
    """Too high and too low count alike; the bias says which it was."""
    store = PredictionErrorStore(store_client)
    group = ErrorGroup(gpu="H100", model_family="F", basis="calibrated")
    for error in (0.05, -0.05, 0.2, -7.0):
        store.add(group, {"ttft_ms_mean": error})

    samples = _metrics(api)

    buckets = {
        labels[2]: value
        for labels, value in _named(samples, "setpoint_prediction_error_ratio_bucket").items()
    }
    assert [buckets[bound] for bound in ("0.02", "0.05", "0.2", "5.0", "+Inf")] == [0, 2, 3, 3, 4]
    (bias,) = _named(samples, "setpoint_prediction_bias_ratio").values()
    assert bias == pytest.approx((0.05 - 0.05 + 0.2 - 7.0) / 4)


def _node(name: str, *queues: str) -> WorkerNode:
    return WorkerNode(
        node=name,
        started_at="",
        heartbeat_at="",
        setpoint_version="0",
        driver=None,
        devices=[],
        environments=[],
        queues=list(queues),
    )


def test_queues_and_workers_are_shown(api: Client, store_client: redis.Redis) -> None:
    """Queues of live workers by name, with the age of the oldest run; all others together."""
    address = api.post("/recommendations", json=request_for("tiny")).headers["location"]
    plan = {"mode": "boot", "when_no_worker": "wait"}
    for queue in (None, {"node": "made-up-by-a-caller"}):
        made = api.post(f"{address}/validations", json=plan | ({"queue": queue} if queue else {}))
        assert made.status_code == 202, made.text
    register(store_client, _node("node-a", "validate.gpu.CPU", "validate.node.node-a"))

    samples = _metrics(api)
    listed = api.get("/workers").json()["queues"]

    assert _named(samples, "setpoint_workers") == {(): 1}
    assert _named(samples, "setpoint_queue_waiting") == {
        ("validate.gpu.CPU",): 1,
        ("validate.node.node-a",): 0,
        ("other",): 1,
    }
    assert _named(samples, "setpoint_queue_oldest_seconds")["validate.gpu.CPU",] >= 0
    assert {item["queue"]: item["waiting"] for item in listed} == {
        "validate.gpu.CPU": 1,
        "validate.node.node-a": 0,
        "validate.node.made-up-by-a-caller": 1,
    }
    assert [item["oldest_waiting_s"] is None for item in listed].count(True) == 1


def test_the_age_of_the_oldest_run_is_told(store_client: redis.Redis) -> None:
    """It grows with the clock until a worker takes the run."""
    at = datetime.now(UTC)
    app = create_app(Settings(warm_up=False), store_client, now=lambda: at)
    with TestClient(app) as client:
        address = client.post("/recommendations", json=request_for("tiny")).headers["location"]
        client.post(f"{address}/validations", json={"mode": "boot", "when_no_worker": "wait"})
        at = at.replace(year=at.year + 1)
        (queue,) = client.get("/workers").json()["queues"]

    assert 364 * 86_400 < queue["oldest_waiting_s"] < 367 * 86_400


def test_while_the_store_is_away_the_rest_is_still_shown(tmp_path: Path) -> None:
    """A scrape never fails for the store, and says that it is away."""
    app = create_app(Settings(warm_up=False), connect(f"unix://{tmp_path}/none", timeout_s=0.2))

    samples = _metrics(TestClient(app))

    assert samples[("setpoint_store_up", ())] == 0
    assert _named(samples, "setpoint_workers") == {}
    assert ("setpoint_http_requests_in_flight", ()) in samples
