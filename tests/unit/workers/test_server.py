"""One server, started and surely ended."""

from pathlib import Path

import pytest

from workers.server import ServerFailed, VllmServer, free_port, server_environment

FAKE = str(Path(__file__).parents[2] / "fakes" / "vllm")


def _server(name: str, *, log_path: Path) -> VllmServer:
    port = free_port()
    command = [FAKE, "serve", "models/tiny", "--port", str(port), "--served-model-name", name]
    return VllmServer(command, port=port, environment={}, log_path=log_path)


def test_it_is_ready_and_then_gone(tmp_path: Path) -> None:
    """Within the block it answers; after it nothing does."""
    with _server("tiny", log_path=tmp_path / "log") as server:
        server.wait_until_ready(limit_s=30)
        assert server.healthy()
        assert server.startup_s is not None
    assert not server.alive
    assert not server.healthy()
    assert "KV cache size" in (tmp_path / "log").read_text()


def test_a_full_disk_loses_the_file_and_not_the_run() -> None:
    """A log that cannot be written is still read: the start-up facts come from memory."""
    with _server("tiny", log_path=Path("/dev/full")) as server:
        server.wait_until_ready(limit_s=30)

        assert "KV cache size" in server.log


def test_a_folder_that_is_gone_loses_the_file_and_not_the_run(tmp_path: Path) -> None:
    """The same when the log cannot even be opened."""
    with _server("tiny", log_path=tmp_path / "missing" / "log") as server:
        server.wait_until_ready(limit_s=30)

        assert "KV cache size" in server.log


def test_a_start_that_fails_says_what_vllm_said(tmp_path: Path) -> None:
    """The log is in the error, since the process is gone."""
    with (
        _server("fail-start", log_path=tmp_path / "log") as server,
        pytest.raises(ServerFailed) as caught,
    ):
        server.wait_until_ready(limit_s=30)

    assert "To serve at least one request" in caught.value.log


def test_an_executable_that_is_missing_is_a_failed_start(tmp_path: Path) -> None:
    """A path that leads nowhere is explained like any other failed start."""
    port = free_port()
    server = VllmServer(
        ["/nowhere/vllm", "serve"], port=port, environment={}, log_path=tmp_path / "log"
    )
    with server, pytest.raises(ServerFailed) as caught:
        server.wait_until_ready(limit_s=30)

    assert "cannot start /nowhere/vllm" in caught.value.log


def test_a_hung_start_ends_at_its_limit_or_when_cancelled(tmp_path: Path) -> None:
    """Both leave the block at once, and the block ends the server."""
    with _server("hang-start", log_path=tmp_path / "log") as server:
        with pytest.raises(ServerFailed, match="not ready"):
            server.wait_until_ready(limit_s=0.1)
        with pytest.raises(ServerFailed, match="cancelled"):
            server.wait_until_ready(limit_s=30, cancelled=lambda: True)
    assert not server.alive


def test_gpus_are_pinned_by_uuid_and_little_is_inherited() -> None:
    """A server sees its own devices only, offline, and none of the service's secrets."""
    variables = server_environment({}, gpu_uuids=["GPU-b", "GPU-a"], is_cpu=False, mark="n/v")

    assert variables["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["SETPOINT_RUN"] == "n/v"
    assert not [
        name for name in variables if name.startswith("SETPOINT_") and name != "SETPOINT_RUN"
    ]


def test_a_cpu_computes_with_one_thread() -> None:
    """More threads made vLLM several times slower there."""
    variables = server_environment({}, gpu_uuids=[], is_cpu=True, mark="n/v")

    assert variables["OMP_NUM_THREADS"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in variables
