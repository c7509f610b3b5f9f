"""A browser, what drives it, and a service to look at."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service_process import ServiceProcess

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
    if not (WEB / "node_modules" / ".package-lock.json").exists():
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
    return WEB


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a service with an empty store."""
    with ServiceProcess(tmp_path_factory.mktemp("data"), LOG_LEVEL="warning") as process:
        yield process
