"""What a worker is told by its environment."""

from pathlib import Path

import pytest

from workers import settings
from workers.settings import read_worker_settings


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        ({}, None),
        ({"SETPOINT_WEBHOOK_SECRETS_DIR": "/all"}, "/all"),
        ({"SETPOINT_WEBHOOK_SECRETS_DIR": "/all", "SETPOINT_WORKER_SECRETS_DIR": "/own"}, "/own"),
    ],
    ids=["none", "of every process", "of workers"],
)
def test_the_folder_of_secrets_is_read(
    tmp_path: Path, given: dict[str, str], folder: str | None
) -> None:
    """A worker has a folder of its own or the one of every process, as a path."""
    found = read_worker_settings({"SETPOINT_DATA_DIR": str(tmp_path)} | given)

    assert found.secrets_dir == (None if folder is None else Path(folder))


def test_without_a_word_the_vllm_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image that was made for vLLM; an environment beside the project comes first."""
    command = tmp_path / "bin" / "vllm"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    beside = tmp_path / "beside"
    monkeypatch.setattr(settings, "_BESIDE_THE_PROJECT", beside)
    variables = {"SETPOINT_DATA_DIR": str(tmp_path)}

    assert read_worker_settings(variables).vllm_envs == (command,)
    beside.mkdir()
    assert read_worker_settings(variables).vllm_envs == (beside,)
    assert read_worker_settings(variables | {"SETPOINT_VLLM_ENVS": ""}).vllm_envs == ()
