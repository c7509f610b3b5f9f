"""What people do with the page at `/`, in a real browser on a real service."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.service_process import ServiceProcess
from workers.tiny_model import CONFIG, write_tiny_model

pytestmark = pytest.mark.browser

_SCENARIOS = Path(__file__).with_name("scenarios.mjs")
_LIMIT_S = 600
_NAMES = re.findall(r'^  async "([a-z-]+)"', _SCENARIOS.read_text(), re.MULTILINE)
_PROOF = "a-validation-is-seen-to-finish"
_KEY = "a-key-is-asked-for"
_TINY = {
    "model": {"id": "tiny", "config": CONFIG},
    "hardware": {"gpu": "cpu", "host_memory_gib": 2},
    "workload": {
        "prompt_tokens": 64,
        "output_tokens": 16,
        "arrivals": {"kind": "closed_loop", "max_concurrency": 4},
    },
    "slo": {"targets": [{"metric": "ttft", "percentile": 95, "limit_ms": 60_000}]},
    "engine": {"version": "0.32.0"},
    "constraints": {"pin": {"kv_cache_memory_bytes": 64 * 2**20, "max_num_seqs": 64}},
}


@pytest.mark.parametrize("scenario", [name for name in _NAMES if name not in {_PROOF, _KEY}])
def test_people_can(scenario: str, service: ServiceProcess, chromium: str, web_tools: Path) -> None:
    """The scenario of this name runs to its end: no fault in the page, no request elsewhere."""
    _act(scenario, service.base_url, chromium=chromium)


def test_people_are_asked_for_a_key(
    guarded_service: tuple[ServiceProcess, str], chromium: str, web_tools: Path
) -> None:
    """Where keys are wanted the page asks for one, keeps it for the tab, and works with it."""
    service, secret = guarded_service
    _act(_KEY, service.base_url, chromium=chromium, PORTAL_KEY=secret)


def test_people_see_a_measurement_finish(
    measuring_service: ServiceProcess, chromium: str, web_tools: Path, tmp_path: Path
) -> None:
    """A validation is started from the page, followed live, and shown beside its prediction."""
    _act(_PROOF, measuring_service.base_url, chromium=chromium, PORTAL_PROOF=_proof(tmp_path))


@pytest.mark.vllm
@pytest.mark.slow
def test_people_see_real_vllm_measured(
    real_service: ServiceProcess, chromium: str, web_tools: Path, tmp_path: Path
) -> None:
    """The same with real vLLM, which serves a tiny model on this machine's CPU."""
    _act(_PROOF, real_service.base_url, chromium=chromium, PORTAL_PROOF=_proof(tmp_path))


def _proof(folder: Path) -> str:
    """Return what the scenario asks for and where the worker finds the model, as JSON."""
    (folder / "model").mkdir()
    path = write_tiny_model(folder / "model")
    return json.dumps({"request": _TINY, "model_path": str(path)})


def _act(scenario: str, base_url: str, *, chromium: str, **variables: str) -> None:
    done = subprocess.run(
        ["node", str(_SCENARIOS), scenario, base_url],  # noqa: S607  # node from the path
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
        env={**os.environ, "PORTAL_CHROMIUM": chromium, **variables},  # noqa: TID251
    )

    assert done.returncode == 0, done.stdout + done.stderr
