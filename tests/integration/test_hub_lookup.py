"""Models that no catalogue holds: the service and the command line ask the Hub when told to."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.integration.service_process import ServiceProcess
from tests.integration.test_hub import CONFIG, HubServer

MODEL = "acme/uncatalogued"
REQUEST = {
    "model": {"id": MODEL},
    "hardware": {"gpu": "H100-SXM5-80GB"},
    "workload": {"preset": "chat", "arrivals": {"kind": "poisson", "requests_per_s": 1.0}},
}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """Yield a Hub with one model that no catalogue holds."""
    with HubServer() as server:
        server.add(MODEL, json.dumps(CONFIG).encode(), model__safetensors=4096)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_service_asks_the_hub_once(
    tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An uncatalogued model is answered, and again from the store when the Hub is away."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    with ServiceProcess(tmp_path / "data", HUB_LOOKUP="true") as service:
        first = service.client.post("/recommendations", json=REQUEST)
        hub.shutdown()
        hub.server_close()
        second = service.client.post("/recommendations", json=REQUEST)

    assert first.status_code == second.status_code == 201, first.text + second.text
    assert first.json()["config"] == second.json()["config"]
    assert any(MODEL in request for request in hub.requests)


def test_the_service_asks_nobody_by_default(
    tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the setting the model is unknown, and no request leaves."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)

    with ServiceProcess(tmp_path / "data") as service:
        answer = service.client.post("/recommendations", json=REQUEST)

    assert (answer.status_code, answer.json()["code"]) == (422, "unknown-model")
    assert hub.requests == []


@pytest.mark.parametrize(("arguments", "is_known"), [((), False), (("--hub",), True)])
def test_the_command_line_asks_when_told_to(
    hub: HubServer,
    arguments: tuple[str, ...],
    is_known: bool,  # noqa: FBT001
) -> None:
    """`setpoint estimate` is offline; with --hub it reads the config."""
    kept = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}  # noqa: TID251
    program = "import sys; sys.argv[0] = 'setpoint'; from service.cli.main import main; main()"
    command = [sys.executable, "-c", program, "estimate", *arguments]

    done = subprocess.run(
        command,
        input=json.dumps({name: REQUEST[name] for name in ("model", "hardware")}),
        env={**kept, "HF_ENDPOINT": hub.endpoint},
        capture_output=True,
        text=True,
        check=True,
    )

    answer = json.loads(done.stdout)
    assert ("problem" not in answer) == is_known
    assert bool(hub.requests) == is_known
