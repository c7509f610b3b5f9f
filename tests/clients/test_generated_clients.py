"""Clients that well-known generators make of the service's own document, used against it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import web_tools  # noqa: F401  # a fixture
from tests.integration.service_process import ServiceProcess
from tests.integration.test_mcp import make_key

HERE = Path(__file__).parent
_LIMIT_S = 300
_TSC = ("--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a running service that serves nobody without a key."""
    folder = tmp_path_factory.mktemp("clients")
    with ServiceProcess(folder, LOG_LEVEL="warning", REQUIRE_KEYS="true") as running:
        yield running


def _run(command: Sequence[str | Path], *, folder: Path) -> str:
    """Return what a command printed; it has to succeed."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # noqa: TID251
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, "PATH": tools},  # noqa: TID251
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + (done.stderr if "generate" in map(str, command) else "")


def _save_document(service: ServiceProcess, folder: Path) -> Path:
    path = folder / "openapi.json"
    path.write_bytes(service.client.get("/openapi.json", timeout=_LIMIT_S).content)
    return path


def _assert_round_trip(service: ServiceProcess, seen: dict[str, Any], key: str) -> None:
    """Compare what a client saw with what plain HTTP says."""
    headers = {"Authorization": f"Bearer {key}"}
    path = f"/recommendations/{seen['id']}"
    stored = service.client.get(path, headers=headers).json()

    assert seen["same"]
    assert seen["rate"] == 4
    assert seen["settings"] == stored["config"]
    assert seen["file"] == service.client.get(f"{path}/files/serve.sh", headers=headers).text
    assert seen["listed"] == [seen["id"]]
    assert seen["problem"] == [422, "unknown-model", "/model/id"]


@pytest.mark.slow
def test_a_generated_python_client_makes_the_round_trip(
    service: ServiceProcess, tmp_path: Path
) -> None:
    """The generator leaves nothing out, the caller's code is typed, and the service agrees."""
    key = make_key(service, "recommend", "read").removeprefix("Bearer ")
    document = _save_document(service, tmp_path)
    options = tmp_path / "options.yaml"
    options.write_text("literal_enums: true\n")

    said = _run(
        [
            *("openapi-python-client", "generate", "--path", document, "--config", options),
            *("--meta", "none", "--output-path", tmp_path / "setpoint_client"),
        ],
        folder=tmp_path,
    )
    shutil.copy(HERE / "round_trip.py", tmp_path)
    # Silent on what the generator's own templates lack; the caller's use of the types is checked.
    _run(["mypy", "--strict", "--follow-imports", "silent", "round_trip.py"], folder=tmp_path)
    seen = _run([sys.executable, "round_trip.py", service.base_url, key], folder=tmp_path)

    assert "WARNING" not in said.upper()
    _assert_round_trip(service, json.loads(seen), key)


@pytest.mark.slow
def test_a_generated_typescript_client_makes_the_round_trip(
    service: ServiceProcess,
    web_tools: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The types compile strictly, the caller's code with them, and the service agrees."""
    key = make_key(service, "recommend", "read").removeprefix("Bearer ")
    document = _save_document(service, tmp_path)
    (tmp_path / "node_modules").symlink_to(web_tools / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    tools = tmp_path / "node_modules" / ".bin"

    _run(
        [
            *(tools / "openapi-typescript", document, "--output", "setpoint.d.ts"),
            *("--default-non-nullable", "false"),
        ],
        folder=tmp_path,
    )
    shutil.copy(HERE / "round_trip.ts", tmp_path)
    _run([tools / "tsc", *_TSC, "round_trip.ts"], folder=tmp_path)
    seen = _run(["node", "round_trip.js", service.base_url, key], folder=tmp_path)

    _assert_round_trip(service, json.loads(seen), key)
