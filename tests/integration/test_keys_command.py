"""`setpoint keys`, and what it changes in running services."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from service.embedded import EmbeddedStore
from tests.integration.service_process import ServiceProcess

_LIMIT_S = 60
_TRIES = 10_000
_PROGRAM = "import sys; sys.argv[0] = 'setpoint'; from service.cli.main import main; main()"


def _run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SETPOINT_")}  # noqa: TID251
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env={**kept, **{f"SETPOINT_{name}": value for name, value in variables.items()}},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _json(*arguments: str, **variables: str) -> Any:  # noqa: ANN401  # JSON
    done = _run("keys", *arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_keys_are_managed_without_a_running_service(tmp_path: Path) -> None:
    """Made, listed, replaced and revoked in the data folder; the secret shows once."""
    folder = str(tmp_path)
    made = _json("create", "--name", "ci", "--tenant", "team-a", DATA_DIR=folder)
    rotated = _json("rotate", made["key"]["id"], DATA_DIR=folder)
    revoked = _run("keys", "revoke", rotated["key"]["prefix"], DATA_DIR=folder)
    listed = _run("keys", "list", DATA_DIR=folder)

    assert revoked.returncode == 0
    assert made["secret"].startswith(made["key"]["prefix"])
    assert rotated["key"]["tenant"] == "team-a"
    for secret in (made["secret"], rotated["secret"]):
        assert secret.rsplit("_", 1)[1] not in listed.stdout
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not any(secret.encode() in path.read_bytes() for path in files)
    assert "expired" in listed.stdout
    assert "revoked" in listed.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--name", ""),
        ("create", "--name", "x", "--tenant", "Team A"),
        ("revoke", "nothing"),
    ],
)
def test_mistakes_are_told_in_a_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Bad input ends with code 2 and one line."""
    done = _run("keys", *arguments, DATA_DIR=str(tmp_path))

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_another_address_needs_a_key_first(tmp_path: Path) -> None:
    """Without keys the service refuses to listen where other machines could call."""
    refused = _run("serve", "--no-worker", HOST="0.0.0.0", PORT="0", DATA_DIR=str(tmp_path))
    _json("create", "--name", "first", "--scope", "admin", DATA_DIR=str(tmp_path))

    with ServiceProcess(tmp_path, HOST="0.0.0.0") as service:
        answer = service.client.get("/gpus")

    assert refused.returncode == 2
    assert "setpoint keys create" in refused.stderr
    assert answer.status_code == 401


@pytest.mark.slow
def test_running_services_follow_within_a_second(tmp_path: Path) -> None:
    """A first key, a rotation and a revocation reach two processes; no log holds a secret."""
    with ExitStack() as stack:
        store = stack.enter_context(EmbeddedStore(str(tmp_path / "store")))
        services = [
            stack.enter_context(ServiceProcess(tmp_path / name, REDIS_URL=store.url))
            for name in ("a", "b")
        ]
        assert [service.client.get("/gpus").status_code for service in services] == [200, 200]

        made = _json("create", "--name", "ci", REDIS_URL=store.url)
        closed = [_settles(service, {}, 401) for service in services]
        headers = {"Authorization": f"Bearer {made['secret']}"}
        opened = [_settles(service, headers, 200) for service in services]
        rotated = _json("rotate", made["key"]["id"], REDIS_URL=store.url)
        old_ended = [_settles(service, headers, 401) for service in services]
        headers = {"Authorization": f"Bearer {rotated['secret']}"}
        new_works = [service.client.get("/gpus", headers=headers) for service in services]
        assert _run("keys", "revoke", rotated["key"]["id"], REDIS_URL=store.url).returncode == 0
        revoked = [_settles(service, headers, 401) for service in services]
        logs = "".join(service.errors for service in services)

    assert all(closed + opened + old_ended + revoked)
    assert [answer.status_code for answer in new_works] == [200, 200]
    for secret in (made["secret"], rotated["secret"]):
        assert secret.rsplit("_", 1)[1] not in logs
    assert f'"caller": "{rotated["key"]["id"]}"' in logs


def _settles(service: ServiceProcess, headers: dict[str, str], status: int) -> bool:
    """Ask until the answer is this one; how long a key is believed is its own test's matter."""
    return any(
        service.client.get("/gpus", headers=headers).status_code == status for _ in range(_TRIES)
    )


def test_a_command_sends_the_key_of_its_environment(tmp_path: Path) -> None:
    """`--server` with SETPOINT_API_KEY is let in; without it the refusal is told."""
    with ServiceProcess(tmp_path, REQUIRE_KEYS="true") as service:
        made = _json("create", "--name", "ci", DATA_DIR=str(tmp_path))
        asked = ("recommend", "--model", "Qwen/Qwen3-8B", "--gpu", "h100", "--json")
        with_key = _run(*asked, "--server", service.base_url, API_KEY=made["secret"])
        without = _run(*asked, "--server", service.base_url)

    assert with_key.returncode == 0, with_key.stderr
    assert json.loads(with_key.stdout)["feasible"]
    assert without.returncode == 2
    assert "API key" in without.stderr
