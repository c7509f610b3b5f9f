"""One trace from the caller's request to the worker's job."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from litestar.testing import TestClient

from service.app import create_app
from service.embedded import EmbeddedStore
from service.settings import Settings
from service.store.workers import live_nodes
from service.telemetry import start_telemetry
from tests.integration.conftest import Client
from tests.integration.otlp_collector import Collector, collecting
from tests.integration.test_validations import finished, recommend, request_for
from tests.integration.worker_process import WorkerProcess, until

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_PARENT = "b7ad6b7169203331"
_TRACEPARENT = f"00-{_TRACE}-{_PARENT}-01"
_HEADERS = {"traceparent": _TRACEPARENT}
_CREATE = "POST /recommendations/{recommendation_id}/validations"
_WAITING = {"mode": "boot", "when_no_worker": "wait"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as started:
        yield started


@pytest.fixture
def traced(store_client: redis.Redis, collector: Collector) -> Iterator[Client]:
    """Return a client of an application that sends its spans."""
    settings = Settings(warm_up=False, otlp_endpoint=collector.endpoint)
    with TestClient(create_app(settings, store_client)) as client:
        yield client


def test_the_request_and_its_job_are_one_trace(
    embedded_store: EmbeddedStore,
    store_client: redis.Redis,
    collector: Collector,
    tmp_path: Path,
) -> None:
    """The caller's trace goes on in the span of the request and in that of the worker's job."""
    settings = Settings(warm_up=False, otlp_endpoint=collector.endpoint)
    worker = WorkerProcess(
        embedded_store.url,
        tmp_path,
        node="node-t",
        SETPOINT_LOG_FORMAT="json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
    )
    with worker, TestClient(create_app(settings, store_client)) as api:
        until(lambda: live_nodes(store_client), "the worker's registration")
        address = recommend(api, "tiny")
        made = api.post(f"{address}/validations", json={"mode": "boot"}, headers=_HEADERS)
        record = finished(api, made.headers["location"])
        until(lambda: collector.named("validation"), "the worker's span")

    assert record["status"] == "succeeded", record
    ((service, request),) = collector.named(_CREATE)
    ((job_service, job),) = collector.named("validation")
    assert (service, job_service) == ("setpoint", "setpoint-worker")
    assert request.trace_id.hex() == job.trace_id.hex() == _TRACE
    assert request.parent_span_id.hex() == _PARENT
    assert job.parent_span_id == request.span_id
    assert record["traceparent"] == f"00-{_TRACE}-{request.span_id.hex()}-01"
    stages = [line for line in _lines(worker.log) if line.get("event") == "validation_stage"]
    assert stages
    assert {line["trace_id"] for line in stages} == {_TRACE}


def _lines(log: str) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def test_without_telemetry_the_callers_context_reaches_the_job_all_the_same(api: Client) -> None:
    """It is stored with what the request started, and so bound to the worker's log lines."""
    recommendation = recommend(api, "tiny")
    study = {
        "recommendation_id": recommendation.rpartition("/")[2],
        "space": {"max_num_seqs": {"kind": "choices", "values": [2, 4]}},
        "when_no_worker": "wait",
    }

    validation = api.post(f"{recommendation}/validations", json=_WAITING, headers=_HEADERS)
    searched = api.post("/studies", json=study, headers=_HEADERS)
    plain = api.post(f"{recommendation}/validations", json=_WAITING)
    broken = api.post(
        f"{recommendation}/validations", json=_WAITING, headers={"traceparent": "00-1-2-3"}
    )

    assert validation.json()["traceparent"] == _TRACEPARENT
    assert searched.json()["traceparent"] == _TRACEPARENT
    assert (plain.json()["traceparent"], broken.json()["traceparent"]) == (None, None)


def test_a_proof_asked_for_with_the_advice_carries_the_trace_too(api: Client) -> None:
    """One request may start both."""
    body = request_for("tiny") | {"validation": _WAITING}
    made = api.post("/recommendations", json=body, headers=_HEADERS)

    (link,) = made.json()["validations"]

    assert api.get(link["url"]).json()["traceparent"] == _TRACEPARENT


def test_spans_name_routes_and_leave_out_what_was_asked(
    traced: Client, collector: Collector
) -> None:
    """A span says which operation it was: no path of a record, no query, no body; no scrapes."""
    traced.get("/gpus/L4")
    traced.get("/recommendations?label=team=secret")
    for path in ("/livez", "/readyz", "/metrics"):
        traced.get(path)
    traced.__exit__(None, None, None)  # the application ends, and sends what it has

    assert [span.name for _, span in collector.spans] == [
        "GET /gpus/{name}",
        "GET /recommendations",
    ]
    assert b"secret" not in b"".join(span.SerializeToString() for _, span in collector.spans)


_WITHOUT = """
import sys
for name in ("opentelemetry", "opentelemetry.sdk", "opentelemetry.trace"):
    sys.modules[name] = None
from litestar.testing import TestClient
from service.app import create_app
from service.settings import read_settings
from service.store.client import connect
app = create_app(read_settings(), connect("unix:///nowhere", timeout_s=0.2))
assert TestClient(app).get("/gpus/L4").status_code == 200
"""


def test_the_extra_is_optional() -> None:
    """Where it is not installed the service says so, and works."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SETPOINT_", "OTEL_"))}  # noqa: TID251
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "SETPOINT_WARM_UP": "false"}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT],
        env=variables | wanted,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "telemetry_not_installed" in done.stdout + done.stderr


def test_without_an_address_no_span_is_made(store_client: redis.Redis) -> None:
    """Off is the default: nothing is recorded, and nothing is sent anywhere."""
    app = create_app(Settings(warm_up=False), store_client)

    assert "OpenTelemetryPlugin" not in {type(plugin).__name__ for plugin in app.plugins}
    assert start_telemetry(endpoint=None, service="setpoint") is None
