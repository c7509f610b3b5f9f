"""A browser, what drives it, and a service to look at."""

import contextlib
import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.embedded import EmbeddedStore
from tests.integration.service_process import ServiceProcess
from tests.integration.worker_process import FAKE, WorkerProcess, until
from tests.vllm_cpu.conftest import VENV

WEB = Path(__file__).parents[2] / "service" / "portal" / "web"
_INSTALL_LIMIT_S = 300


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of a Chromium, with Node.js beside it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None or shutil.which("node") is None:
        pytest.skip("needs chromium and node (Debian: apt-get install chromium nodejs npm)")
    return found


@pytest.fixture(scope="session")
def web_tools() -> Path:
    """Return the folder of the page's sources with its locked tools installed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    with (WEB / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come at once
        if _are_missing_or_old():
            _install(npm)
    return WEB


def _are_missing_or_old() -> bool:
    installed, locked = WEB / "node_modules" / ".package-lock.json", WEB / "package-lock.json"
    return not installed.exists() or installed.stat().st_mtime < locked.stat().st_mtime


def _install(npm: str) -> None:
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"],
        cwd=WEB,
        capture_output=True,
        text=True,
        check=False,
        timeout=_INSTALL_LIMIT_S,
    )
    if done.returncode != 0:
        pytest.skip(f"npm ci failed: {done.stderr[-300:]}")


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a service with an empty store."""
    with ServiceProcess(tmp_path_factory.mktemp("data"), LOG_LEVEL="warning") as process:
        yield process


@pytest.fixture
def guarded_service(tmp_path: Path) -> Iterator[tuple[ServiceProcess, str]]:
    """Return a service that wants keys, and a key that may read and recommend."""
    with ServiceProcess(tmp_path / "data", LOG_LEVEL="warning") as process:
        command = [sys.executable, "-c", "from service.cli.main import main; main()", "keys"]
        options = ["--name", "page", "--scope", "read", "--scope", "recommend", "--json"]
        made = subprocess.run(
            [*command, "create", *options, "--data-dir", str(process.data_dir)],
            capture_output=True,
            text=True,
            check=True,
        )
        yield process, json.loads(made.stdout)["secret"]


@pytest.fixture
def measuring_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Return a service with a worker whose vLLM is a fake that repeats recorded output."""
    with _with_worker(tmp_path, vllm=FAKE) as process:
        yield process


@pytest.fixture
def real_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """Return a service with a worker that runs real vLLM on this machine's CPU."""
    if not list(VENV.glob("stamps/check.*")):
        pytest.skip("run deploy/vllm-cpu/setup.sh first")
    with _with_worker(tmp_path, vllm=VENV) as process:
        yield process


@contextlib.contextmanager
def _with_worker(folder: Path, *, vllm: Path) -> Iterator[ServiceProcess]:
    with (
        EmbeddedStore(str(folder / "store")) as store,
        ServiceProcess(folder / "data", REDIS_URL=store.url, LOG_LEVEL="warning") as service,
        WorkerProcess(store.url, folder, node="node-a", SETPOINT_VLLM_ENVS=str(vllm)),
    ):
        until(lambda: service.client.get("/workers").json()["items"], "the worker's registration")
        yield service
