# ruff: noqa: N802, D102, ARG002, RUF012  # the names and signatures are those of the driver library
"""What a node has, as the driver's library says it; a stand-in plays the library."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from api_schemas.worker import WorkerDevice
from service.queue import gpu_name
from workers import nvml
from workers.inventory import describe_node, find_devices, find_environments
from workers.settings import read_worker_settings

_GIB = 1024**3
Handle: TypeAlias = int | str
"""A GPU by its number, or a slice by its UUID."""


class FakeNvml:
    """Five GPUs: two bridged by NVLink and one of them in use, one alone, one split, one bare.

    The last one has nothing but a name, a UUID and an address, as parts or drivers may.
    """

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    _PEERS = {0: "00000000:02:00.0", 1: "00000000:01:00.0"}
    _SPLIT, _BARE = 3, 4
    _LEVELS = {(0, 1): 10, (0, 2): 30, (1, 2): 30, (0, 3): 50, (1, 3): 50, (2, 3): 50}
    PID = 4711
    _SLICES = {0: "MIG-a", 2: "MIG-b"}

    def __init__(self, *, driver: bool = True, count: int = 5) -> None:
        self._driver, self._count = driver, count

    def _need(self, handle: Handle) -> None:
        if handle == self._BARE:
            raise self.NVMLError

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

    def nvmlDeviceGetName(self, handle: Handle) -> bytes:
        profile = b" MIG 1g.10gb" if isinstance(handle, str) else b""
        return b"NVIDIA A100-SXM4-80GB" + profile

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        return handle if isinstance(handle, str) else f"GPU-{handle}"

    def nvmlDeviceGetPciInfo(self, handle: Handle) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:0{int(handle) + 1}:00.0")

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> SimpleNamespace:
        self._need(handle)
        size = 10 if isinstance(handle, str) else 80
        return SimpleNamespace(total=size * _GIB, free=(size - 1) * _GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Handle) -> tuple[int, int]:
        self._need(handle)
        return 8, 0

    def nvmlDeviceGetMigMode(self, handle: Handle) -> tuple[int, int]:
        if handle == 2:
            raise self.NVMLError
        self._need(handle)
        return int(handle == self._SPLIT), 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Handle, index: int) -> str:
        if index not in self._SLICES:
            raise self.NVMLError
        return self._SLICES[index]

    def nvmlDeviceGetClockInfo(self, handle: Handle, kind: int) -> int:
        self._need(handle)
        return {1: 1275, 2: 1512}[kind]

    def nvmlDeviceGetMaxClockInfo(self, handle: Handle, kind: int) -> int:
        self._need(handle)
        return {1: 1410, 2: 1593}[kind]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> list[object]:
        self._need(handle)
        return [SimpleNamespace(pid=self.PID)] if handle in {1, "MIG-b"} else []

    def nvmlDeviceGetTopologyCommonAncestor(self, handle: Handle, other: Handle) -> int:
        self._need(handle)
        self._need(other)
        one, two = sorted((int(handle), int(other)))
        return self._LEVELS[one, two]

    def nvmlDeviceGetNvLinkState(self, handle: Handle, link: int) -> int:
        if handle not in self._PEERS:
            raise self.NVMLError
        return int(link < 2)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Handle, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=self._PEERS[int(handle)].encode())


def _with(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:  # noqa: ANN401  # a module's stand-in
    monkeypatch.setattr(nvml, "pynvml", library)


def _found(monkeypatch: pytest.MonkeyPatch) -> dict[str, WorkerDevice]:
    _with(monkeypatch, FakeNvml())
    devices, driver = find_devices()
    assert driver == "570.1"
    return {device.uuid: device for device in devices}


def test_processes_of_ones_own_runs_are_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is at work is told by process: a run's own server is no stranger on its GPU."""
    _with(monkeypatch, FakeNvml())

    devices, _ = find_devices(lambda pid: pid == FakeNvml.PID)

    assert {device.foreign_processes for device in devices} == {0}


def test_gpus_are_described_with_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, UUID, memory, clocks, links by UUID over NVLink and PCIe, and who is at work."""
    found = _found(monkeypatch)

    gpus = [found[f"GPU-{number}"] for number in range(4)]
    assert [gpu.nvlink_peers for gpu in gpus] == [["GPU-1"], ["GPU-0"], [], []]
    assert [gpu.foreign_processes for gpu in gpus] == [0, 1, 0, 0]
    assert gpus[0].pcie_paths == {"GPU-1": "switch", "GPU-2": "host_bridge", "GPU-3": "system"}
    assert gpus[0].name == "NVIDIA A100-SXM4-80GB"
    assert (gpus[0].memory_gib, gpus[0].compute_capability) == (80.0, "8.0")
    assert (gpus[0].sm_clock_mhz, gpus[0].max_sm_clock_mhz) == (1275, 1410)
    assert (gpus[0].memory_clock_mhz, gpus[0].max_memory_clock_mhz) == (1512, 1593)


def test_a_split_gpu_is_followed_by_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each MIG instance is a device by its own UUID, with its own memory and processes."""
    found = _found(monkeypatch)

    assert list(found) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3", "MIG-a", "MIG-b", "GPU-4"]
    assert [uuid for uuid, device in found.items() if device.mig] == ["GPU-3"]
    for uuid, processes in (("MIG-a", 0), ("MIG-b", 1)):
        part = found[uuid]
        assert (part.slice_of, part.name) == ("GPU-3", "NVIDIA A100-SXM4-80GB MIG 1g.10gb")
        assert (part.memory_gib, part.foreign_processes) == (10.0, processes)
        assert gpu_name(part.name) == "A100-SXM4-80GB MIG 1g.10gb"


def test_what_a_driver_does_not_tell_hides_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without figures is listed all the same; it shares the memory of the host."""
    bare = _found(monkeypatch)["GPU-4"]

    assert (bare.sm_clock_mhz, bare.compute_capability, bare.mig) == (None, None, False)
    assert bare.pcie_paths == {}
    assert bare.memory_gib > 0


def test_a_node_listens_for_what_it_can_lease(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A split GPU is asked for by its slices; where no whole one is left, whole ones are not."""
    settings = read_worker_settings(
        {"SETPOINT_DATA_DIR": str(tmp_path), "SETPOINT_WORKER_NODE": "n", "SETPOINT_VLLM_ENVS": ""}
    )
    _with(monkeypatch, FakeNvml())

    assert describe_node(settings).queues == [
        "validate.node.n",
        "validate.gpu.A100-SXM4-80GB",
        "validate.gpu.A100-SXM4-80GB-MIG-1g.10gb",
    ]


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
