"""What people do with the page at `/`, in a real browser on a real service."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.service_process import ServiceProcess

pytestmark = pytest.mark.browser

_SCENARIOS = Path(__file__).with_name("scenarios.mjs")
_LIMIT_S = 240
_NAMES = re.findall(r'^  async "([a-z-]+)"', _SCENARIOS.read_text(), re.MULTILINE)
_NEEDS_VLLM = "a-validation-is-seen-to-finish"


@pytest.mark.parametrize("scenario", [name for name in _NAMES if name != _NEEDS_VLLM])
def test_people_can(scenario: str, service: ServiceProcess, chromium: str, web_tools: Path) -> None:
    """The scenario of this name runs to its end: no fault in the page, no request elsewhere."""
    done = subprocess.run(
        ["node", str(_SCENARIOS), scenario, service.base_url],  # noqa: S607  # node from the path
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
        env={**os.environ, "PORTAL_CHROMIUM": chromium},  # noqa: TID251
    )

    assert done.returncode == 0, done.stdout + done.stderr
