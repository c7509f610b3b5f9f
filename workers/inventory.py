"""What this node has: accelerators through the NVIDIA driver, else the CPU; vLLM environments."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pynvml

from api_schemas.worker import VllmEnvironment, WorkerDevice

_GIB = 1024**3
_VERSION_TIMEOUT_S = 120
_MAX_LINKS = 18


def find_devices() -> tuple[list[WorkerDevice], str | None]:
    """Return the node's accelerators and the driver version; the CPU when there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [_cpu()], None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        bus_ids = {_text(pynvml.nvmlDeviceGetPciInfo(h).busId): _uuid(h) for h in handles}
        devices = [_gpu(handle, bus_ids) for handle in handles]
        return devices or [_cpu()], _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def find_environments(folders: Iterable[Path]) -> list[VllmEnvironment]:
    """Return the vLLM environments at these paths; one that does not answer is left out."""
    found = (_environment(folder) for folder in folders)
    return sorted((item for item in found if item), key=lambda item: item.version)


def _gpu(handle: pynvml.c_nvmlDevice_t, bus_ids: dict[str, str]) -> WorkerDevice:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return WorkerDevice(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_uuid(handle),
        memory_gib=round(int(memory.total) / _GIB, 2),
        free_gib=round(int(memory.free) / _GIB, 2),
        compute_capability=f"{major}.{minor}",
        mig=_has_mig(handle),
        nvlink_peers=_nvlink_peers(handle, bus_ids),
        foreign_processes=len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    )


def _has_mig(handle: pynvml.c_nvmlDevice_t) -> bool:
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False
    return bool(current)


def _nvlink_peers(handle: pynvml.c_nvmlDevice_t, bus_ids: dict[str, str]) -> list[str]:
    """UUIDs at the other end of active links; a part without NVLink has none."""
    peers = set()
    for link in range(_MAX_LINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = _text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except pynvml.NVMLError:
            break
        peers.add(bus_ids.get(remote, f"switch:{remote}"))
    return sorted(peers)


def _uuid(handle: pynvml.c_nvmlDevice_t) -> str:
    return _text(pynvml.nvmlDeviceGetUUID(handle))


def _cpu() -> WorkerDevice:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_AVPHYS_PAGES")
    return WorkerDevice(
        name="cpu",
        uuid=f"CPU-{platform.node()}",
        memory_gib=round(pages * size / _GIB, 2),
        free_gib=round(free * size / _GIB, 2),
    )


def _environment(folder: Path) -> VllmEnvironment | None:
    binary = folder if folder.is_file() else folder / "bin" / "vllm"
    if not binary.is_file():
        return None
    try:
        done = subprocess.run(
            [str(binary), "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+\.\d+\.\d+\S*)", done.stdout)
    if match is None:
        return None
    version, _, local = match[1].partition("+")
    return VllmEnvironment(version=version, path=str(binary), is_cpu="cpu" in local)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
