"""Health, metrics, limits and what happens when the store is away."""

import asyncio
import threading
from pathlib import Path

import httpx
import pytest
from litestar.testing import TestClient

from service.app import create_app
from service.settings import Settings
from service.store.client import connect
from tests.integration.conftest import Client


def test_livez_and_readyz_answer(api: Client) -> None:
    """Both are fine while the store answers."""
    assert api.get("/livez").json() == {"status": "ok"}
    assert api.get("/readyz").json() == {"status": "ok", "store": "ok"}


@pytest.fixture
def storeless(tmp_path: Path) -> Client:
    """Return a client of an API whose store is not there."""
    settings = Settings(warm_up=False)
    return TestClient(create_app(settings, connect(f"unix://{tmp_path}/none", timeout_s=0.2)))


def test_without_a_store_the_process_lives_but_is_not_ready(storeless: Client) -> None:
    """Liveness never touches the store; readiness says 503 with Retry-After."""
    assert storeless.get("/livez").status_code == 200

    response = storeless.get("/readyz")

    assert response.status_code == 503
    assert response.json()["code"] == "store-unavailable"
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/recommendations"),
        ("GET", "/recommendations/x"),
        ("DELETE", "/recommendations/x"),
        ("GET", "/recommendations/x/files/serve.sh"),
    ],
)
def test_without_a_store_nothing_is_acknowledged(storeless: Client, method: str, path: str) -> None:
    """Every route that needs the store answers store-unavailable."""
    response = storeless.request(method, path)

    assert (response.status_code, response.json()["code"]) == (503, "store-unavailable")


def test_store_failures_are_counted(storeless: Client) -> None:
    """The metrics show how many requests the store failed."""
    storeless.get("/recommendations")

    assert "setpoint_store_errors_total 1.0" in storeless.get("/metrics").text


def test_catalogues_answer_without_a_store(storeless: Client) -> None:
    """What is known needs no store."""
    for path in ("/gpus", "/presets", "/engine-versions", "/rules", "/openapi.json", "/"):
        assert storeless.get(path).status_code == 200


def test_metrics_count_requests_by_route(api: Client) -> None:
    """Requests are counted by route template, method and status, never by raw path."""
    api.get("/gpus/L4")
    api.get("/gpus/none")
    api.get("/made/up/path")
    api.request("BREW", "/gpus")

    text = api.get("/metrics").text

    assert 'requests_total{method="GET",route="/gpus/{name}",status="200"} 1.0' in text
    assert 'requests_total{method="GET",route="/gpus/{name}",status="404"} 1.0' in text
    assert 'requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert 'requests_total{method="other",route="unmatched",status="405"} 1.0' in text
    assert "made" not in text


def test_head_answers_like_get_without_a_body(api: Client) -> None:
    """HEAD has the headers of GET, the length too, and nothing else."""
    got, head = api.get("/gpus"), api.head("/gpus")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]


def test_one_request_too_many_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit a request gets 429 with Retry-After at once; health checks still pass."""
    entered, release = threading.Event(), threading.Event()

    def wait_for_release() -> tuple[()]:
        entered.set()
        release.wait(10)
        return ()

    monkeypatch.setattr("service.api.system.document", lambda _: wait_for_release() or b"{}")
    settings = Settings(warm_up=False, max_concurrent_requests=1)
    app = create_app(settings, connect(f"unix://{tmp_path}/none", timeout_s=0.2))

    async def run() -> tuple[httpx.Response, ...]:
        transport = httpx.ASGITransport(app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            slow = asyncio.create_task(client.get("/openapi.json"))
            await asyncio.to_thread(entered.wait, 10)
            refused, alive = await client.get("/gpus"), await client.get("/livez")
            release.set()
            return await slow, refused, alive, await client.get("/gpus")

    slow, refused, alive, later = asyncio.run(run())

    assert (slow.status_code, alive.status_code, later.status_code) == (200, 200, 200)
    assert refused.status_code == 429
    assert refused.json()["code"] == "rate-limited"
    assert refused.json()["request_id"] == refused.headers["x-request-id"]
    assert refused.headers["retry-after"] == "1"
