# ruff: noqa: N802, D102, ARG002, RUF012  # the names and signatures are those of the driver library
"""What a node has, as the driver's library says it; a stand-in plays the library."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workers import inventory
from workers.inventory import find_devices, find_environments

_GIB = 1024**3


class FakeNvml:
    """Two GPUs that are bridged by NVLink, the second one in use, and a third one alone."""

    NVMLError = type("NVMLError", (Exception,), {})
    _PEERS = {0: "00000000:02:00.0", 1: "00000000:01:00.0"}

    def __init__(self, *, driver: bool = True, count: int = 3) -> None:
        self._driver, self._count = driver, count

    def nvmlInit(self) -> None:
        if not self._driver:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:
        """Nothing is open."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetCount(self) -> int:
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:0{handle + 1}:00.0")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 * _GIB, free=79 * _GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 8, 0

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:
        if handle == 2:
            raise self.NVMLError
        return 0, 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[object]:
        return [object()] if handle == 1 else []

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if handle not in self._PEERS:
            raise self.NVMLError
        return int(link < 2)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self._PEERS[handle].encode())


def _with(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:  # noqa: ANN401  # a module's stand-in
    monkeypatch.setattr(inventory, "pynvml", library)


def test_gpus_are_described_with_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, UUID, memory, links by UUID, and who else is at work."""
    _with(monkeypatch, FakeNvml())

    devices, driver = find_devices()

    assert driver == "570.1"
    assert [device.uuid for device in devices] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [device.nvlink_peers for device in devices] == [["GPU-1"], ["GPU-0"], []]
    assert [device.foreign_processes for device in devices] == [0, 1, 0]
    assert devices[0].name == "NVIDIA A100-SXM4-80GB"
    assert (devices[0].memory_gib, devices[0].compute_capability) == (80.0, "8.0")


@pytest.mark.parametrize("library", [FakeNvml(driver=False), FakeNvml(count=0)])
def test_without_a_gpu_the_node_has_its_cpu(
    monkeypatch: pytest.MonkeyPatch, library: FakeNvml
) -> None:
    """No driver or no device: vLLM's CPU backend is what can be measured."""
    _with(monkeypatch, library)

    devices, _ = find_devices()

    assert [device.name for device in devices] == ["cpu"]
    assert devices[0].memory_gib > 0


def _executable(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_environments_are_found_by_folder_or_path(tmp_path: Path) -> None:
    """A folder tells its version by its metadata, an executable is asked."""
    folder = tmp_path / "env"
    _executable(folder / "bin" / "vllm", "never asked")
    (folder / "lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info").mkdir(parents=True)
    alone = _executable(tmp_path / "vllm", "INFO starting\n0.31.1")

    found = find_environments([folder, alone])

    assert [(item.version, item.is_cpu) for item in found] == [("0.31.1", False), ("0.32.0", True)]


def test_what_is_no_environment_is_left_out(tmp_path: Path) -> None:
    """A path without vLLM, or one that does not answer with a version, is none."""
    broken = _executable(tmp_path / "vllm", "no version here")

    assert find_environments([tmp_path / "missing", broken]) == []
