"""The Backstage examples, held to Backstage's own schemas and run by its own template engine."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.service_process import ServiceProcess
from tests.integration.test_mcp import make_key

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
EXAMPLES = ROOT / "examples" / "backstage"
_INSTALL_LIMIT_S = 300
_PARAMETERS = {
    "model": "Qwen/Qwen3-8B",
    "gpu": "H100",
    "gpusPerNode": 1,
    "preset": "chat",
    "requestsPerSecond": 2.5,
    "ttftMs": 800,
    "tpotMs": 50,
    "repoUrl": "github.com?owner=team&repo=serving",
    "folder": "deploy/vllm",
}


@pytest.fixture(scope="module")
def node() -> str:
    """Return the path of Node.js, with Backstage's packages installed beside the script."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found is None or npm is None:
        pytest.skip("needs node and npm (Debian: apt-get install nodejs npm)")
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come at once
        if not (HERE / "node_modules" / ".package-lock.json").exists():
            done = subprocess.run(
                [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
                cwd=HERE,
                capture_output=True,
                text=True,
                check=False,
                timeout=_INSTALL_LIMIT_S,
            )
            if done.returncode != 0:
                pytest.skip(f"npm ci failed: {done.stderr[-300:]}")
    return found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Return a running service that serves nobody without a key."""
    folder = tmp_path_factory.mktemp("backstage")
    with ServiceProcess(folder, LOG_LEVEL="warning", REQUIRE_KEYS="true") as running:
        yield running


def _entities(document: str) -> list[dict[str, Any]]:
    """Return every entity of the examples, with the API's document in place of its address."""
    texts = [(ROOT / "catalog-info.yaml").read_text(), (EXAMPLES / "template.yaml").read_text()]
    entities: list[dict[str, Any]] = [item for text in texts for item in yaml.safe_load_all(text)]
    for entity in entities:
        if entity["kind"] == "API":
            assert entity["spec"]["definition"]["$text"].endswith("/openapi.json")
            entity["spec"]["definition"] = document
    return entities


def _dry_run(node: str, service: ServiceProcess, key: str, **changes: object) -> Any:  # noqa: ANN401
    asked = {
        "entities": _entities(service.client.get("/openapi.json", timeout=120).text),
        "parameters": _PARAMETERS | changes,
        "service": {"baseUrl": service.base_url, "authorization": key},
    }
    return subprocess.run(
        [node, "dry_run.mjs"],
        cwd=HERE,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_the_template_turns_an_answer_into_a_pull_request(
    node: str, service: ServiceProcess
) -> None:
    """Entities are valid; one request gives every file, and the proposal says what was found."""
    key = make_key(service, "recommend", "read")

    done = _dry_run(node, service, key)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)

    name = told["pullRequest"]["branchName"].removeprefix("setpoint-")
    stored = service.client.get(f"/recommendations/{name}", headers={"Authorization": key}).json()
    assert told["files"] == {
        f"deploy/vllm/{file['path']}": file["content"] for file in stored["files"]
    }
    assert told["pullRequest"]["description"] == stored["headline"]
    assert stored["request"]["workload"]["arrivals"]["requests_per_s"] == 2.5
    assert stored["labels"] == {"source": "backstage"}
    assert told["output"]["links"][0]["url"]


@pytest.mark.slow
def test_a_refusal_fails_the_template_with_its_reason(node: str, service: ServiceProcess) -> None:
    """An unknown model stops at the first step, and the log holds the problem."""
    done = _dry_run(node, service, make_key(service, "recommend"), model="nobody/nothing")

    assert done.returncode != 0
    assert "unknown-model" in done.stderr


def test_the_template_asks_for_what_its_steps_use() -> None:
    """Every parameter of the steps has a question, and every preset offered is one we know."""
    text = (EXAMPLES / "template.yaml").read_text()
    spec = yaml.safe_load(text)["spec"]
    asked = {name for page in spec["parameters"] for name in page["properties"]}

    assert asked == set(_PARAMETERS)
    assert all(f"parameters.{name}" in text for name in asked)


def test_the_proxy_and_the_template_agree_on_the_path() -> None:
    """What the template calls is what the configuration passes on."""
    config = yaml.safe_load((EXAMPLES / "app-config.yaml").read_text())
    spec = yaml.safe_load((EXAMPLES / "template.yaml").read_text())["spec"]
    path = spec["steps"][0]["input"]["path"]

    assert any(path.startswith(f"/proxy{prefix}/") for prefix in config["proxy"]["endpoints"])
