"""The container files promise what the documentation says of them; no engine is needed to tell."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
_DOCKERFILE = (ROOT / "Dockerfile").read_text()
_COMPOSE_TEXT = (ROOT / "compose.yaml").read_text()
_COMPOSE: dict[str, Any] = yaml.safe_load(_COMPOSE_TEXT)
_SERVICES: dict[str, Any] = _COMPOSE["services"]
_GPU_WORKERS = {name: item for name, item in _SERVICES.items() if name.startswith("worker-gpu")}
_TARGETS = ("api", "worker")


def _stages() -> dict[str, list[str]]:
    """Return by name the instructions of each stage of the Dockerfile, one line each."""
    stages: dict[str, list[str]] = {}
    name = ""
    for line in re.sub(r"\\\n\s*", "", _DOCKERFILE).splitlines():
        if begun := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            name = begun[2]
            stages[name] = []
        elif name and line and not line.startswith("#"):
            stages[name].append(line)
    return stages


def _of(stage: str, instruction: str) -> list[str]:
    prefix = f"{instruction} "
    return [line.removeprefix(prefix) for line in _stages()[stage] if line.startswith(prefix)]


def _variables(stage: str) -> dict[str, str]:
    pairs = [pair for line in _of(stage, "ENV") for pair in line.split()]
    return dict(pair.split("=", 1) for pair in pairs)


def test_hadolint_finds_nothing() -> None:
    """The linter that most people use is content, down to its remarks on style."""
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint has no build for this platform")

    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("target", _TARGETS)
def test_a_target_runs_as_a_plain_user(target: str) -> None:
    """The last user is a number above the system's, so that an orchestrator can check it."""
    user = _of(target, "USER")[-1]

    assert user.isdigit()
    assert int(user) >= 10_000
    assert any(f"--uid {user}" in line for line in _of(target, "RUN"))
    assert _stages()[target].index(f"USER {user}") > max(
        number for number, line in enumerate(_stages()[target]) if line.startswith("RUN ")
    )


@pytest.mark.parametrize("target", _TARGETS)
def test_a_target_imports_no_stray_folder(target: str) -> None:
    """A folder called `service` in the working directory does not shadow the package."""
    assert _variables(target)["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize("target", _TARGETS)
def test_a_target_tells_of_its_health(target: str) -> None:
    """The check is a command as a list, with limits, whose module or address is there."""
    (check,) = _of(target, "HEALTHCHECK")
    limits, _, command = check.partition(" CMD ")
    words = json.loads(command)

    assert {"--interval", "--timeout", "--start-period"} <= {
        part.split("=")[0] for part in limits.split()
    }
    if target == "api":
        assert "/livez" in words[-1]
        compile(words[-1], "health check", "exec")
    else:
        assert words[-2:] == ["-m", "workers.health"]
        assert (ROOT / "workers" / "health.py").exists()


@pytest.mark.parametrize("target", _TARGETS)
def test_a_target_starts_by_a_list(target: str) -> None:
    """Signals reach the program itself, since no shell stands between."""
    (entry,) = _of(target, "ENTRYPOINT")

    assert isinstance(json.loads(entry), list)


def test_the_worker_stands_on_an_image_with_vllm() -> None:
    """Its base can be chosen, and its own packages stay out of vLLM's environment."""
    assert "FROM ${VLLM_IMAGE} AS worker" in _DOCKERFILE
    assert re.search(r"^ARG VLLM_IMAGE=vllm/vllm-openai:v\d+\.\d+\.\d+$", _DOCKERFILE, re.MULTILINE)
    assert "PATH" not in _variables("worker")
    assert all("pip" not in line or "/opt/setpoint/" in line for line in _of("worker", "RUN"))


def test_every_pip_install_is_locked() -> None:
    """What an image holds is what was tested: by hash, or built from this very source."""
    installs = re.findall(r"pip install ([^&\n]*)", re.sub(r"\\\n\s*", "", _DOCKERFILE))

    assert installs
    assert all("--require-hashes" in item or "--no-deps" in item for item in installs)


def test_the_locks_agree() -> None:
    """What the images run is what the tests ran with, without the tools of the tests."""
    everything, runtime = (
        set(re.findall(r"^(\S+==\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-runtime.lock")
    )

    assert runtime < everything
    assert not [pin for pin in runtime if pin.startswith(("pytest", "ruff", "mypy", "hypothesis"))]


def test_everything_that_is_copied_is_sent_to_the_engine() -> None:
    """The list of what stays out leaves in each file and folder that an image takes."""
    sources = [
        source
        for stage in _stages()
        for line in _of(stage, "COPY")
        if not line.startswith("--from")
        for source in line.split()[:-1]
    ]
    let_in = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }

    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert {source, str(Path(source).parent)} & let_in, source


def _compose_command() -> tuple[list[str], str] | None:
    """Return the tool at hand that reads compose files, and the text that it can read.

    The release that Debian 12 ships does not know the name of the project; all else it knows.
    """
    if shutil.which("docker"):
        command = ["docker", "compose"]
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command, _COMPOSE_TEXT
    if shutil.which("docker-compose"):
        return ["docker-compose"], re.sub(r"^name: .*$", "", _COMPOSE_TEXT, flags=re.MULTILINE)
    return None


def _resolved(tmp_path: Path, *profiles: str) -> dict[str, Any]:
    found = _compose_command()
    if found is None:
        pytest.skip("neither docker compose nor docker-compose is installed")
    command, text = found
    (tmp_path / "compose.yaml").write_text(text)
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    done = subprocess.run(
        [*command, *chosen, "config"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    resolved: dict[str, Any] = yaml.safe_load(done.stdout)
    return resolved


@pytest.mark.parametrize(
    ("profiles", "workers"), [((), 0), (("gpu",), 1), (("gpu-2",), 2), (("gpu-4",), 4)]
)
def test_compose_reads_the_file(tmp_path: Path, profiles: tuple[str, ...], workers: int) -> None:
    """The real tool accepts it with every profile, and each has one worker per GPU."""
    services = _resolved(tmp_path, *profiles)["services"]

    started = {
        name: item
        for name, item in services.items()
        if not item.get("profiles") or set(item["profiles"]) & set(profiles)
    }
    assert {"valkey", "api", "worker"} <= set(started)
    assert len([name for name in started if name.startswith("worker-gpu")]) == workers
    assert all(
        item["environment"]["SETPOINT_REDIS_URL"] == "redis://valkey:6379/0"
        for name, item in started.items()
        if name != "valkey"
    )


def test_compose_has_nothing_unknown() -> None:
    """Top level and services hold the keys of the compose specification that are meant."""
    assert {key for key in _COMPOSE if not key.startswith("x-")} == {"name", "services", "volumes"}
    known = {
        *("build", "command", "depends_on", "deploy", "environment", "healthcheck", "image"),
        *("init", "ipc", "ports", "profiles", "restart", "stop_grace_period", "volumes"),
    }
    assert {key for item in _SERVICES.values() for key in item} <= known


def test_without_a_profile_a_worker_proves_on_the_cpu() -> None:
    """Valkey, the API and a worker with vLLM's CPU build of the same release."""
    plain = {name for name, item in _SERVICES.items() if "profiles" not in item}

    assert plain == {"valkey", "api", "worker"}
    image = _SERVICES["worker"]["build"]["args"]["VLLM_IMAGE"]
    release = image.rpartition(":")[2]
    assert image.startswith("vllm/vllm-openai-cpu:")
    assert f"vllm/vllm-openai:{release}\n" in _DOCKERFILE
    assert "devices" not in json.dumps(_SERVICES["worker"])


def test_each_gpu_worker_has_one_gpu_of_its_own() -> None:
    """The NVIDIA runtime gives every worker one device, and no two the same."""
    devices = [
        item["deploy"]["resources"]["reservations"]["devices"] for item in _GPU_WORKERS.values()
    ]
    names = [
        item["environment"]["SETPOINT_WORKER_NODE"]
        for item in _SERVICES.values()
        if "SETPOINT_WORKER_NODE" in item.get("environment", {})
    ]

    assert all(len(found) == 1 for found in devices)
    assert all(found[0]["driver"] == "nvidia" for found in devices)
    assert all(found[0]["capabilities"] == ["gpu"] for found in devices)
    ids = [found[0]["device_ids"] for found in devices]
    assert ids == [[str(number)] for number in range(len(_GPU_WORKERS))]
    assert len(set(names)) == len(names) == len(_GPU_WORKERS) + 1
    assert "gpu" in _GPU_WORKERS["worker-gpu0"]["profiles"]


@pytest.mark.parametrize("name", sorted(_SERVICES))
def test_every_service_comes_back_and_waits_for_the_store(name: str) -> None:
    """After a crash it is started again, and nobody starts before the store is healthy."""
    service = _SERVICES[name]

    assert service["restart"] == "unless-stopped"
    if name == "valkey":
        assert "appendonly" in " ".join(service["command"])
        assert service["healthcheck"]["test"][0] == "CMD"
    else:
        assert service["depends_on"]["valkey"]["condition"] == "service_healthy"


def test_the_api_is_not_published_beyond_the_host() -> None:
    """Who wants to serve others says so."""
    assert all(port.startswith("127.0.0.1:") for port in _SERVICES["api"]["ports"])


def test_a_worker_may_end_in_peace() -> None:
    """It has time to stop vLLM, and a process that collects what that leaves."""
    for name, service in _SERVICES.items():
        if name.startswith("worker"):
            assert service["init"] is True
            assert service["stop_grace_period"] == "60s"
