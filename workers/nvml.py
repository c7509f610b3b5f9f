"""What the NVIDIA driver says of this node's GPUs, read through its management library.

Only reading happens here; which devices a run takes is decided in `workers.devices`. A figure that
a part or a driver does not have is left out, so that no old driver hides a GPU.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
import pynvml

from api_schemas.worker import PciePath, WorkerDevice

_GIB = 1024**3
_MAX_LINKS = 18
"""NVLinks of one GPU; the library says so by its constant NVML_NVLINK_MAX_LINKS."""
_PATHS: dict[int, PciePath] = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "board",
    pynvml.NVML_TOPOLOGY_SINGLE: "switch",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "switches",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "host_bridge",
    pynvml.NVML_TOPOLOGY_NODE: "numa_node",
    pynvml.NVML_TOPOLOGY_SYSTEM: "system",
}
_Handle: TypeAlias = pynvml.c_nvmlDevice_t
IsOurs: TypeAlias = Callable[[int], bool]
"""Tells by its id whether a process belongs to a run that is worked on."""


def read_gpus(is_ours: IsOurs) -> tuple[list[WorkerDevice], str | None]:
    """Return GPUs, each followed by its slices, and the driver's version; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        by_uuid = {_uuid(handle): handle for handle in handles}
        devices = [
            device
            for handle in handles
            for gpu in [_gpu(handle, by_uuid, is_ours)]
            for device in [gpu, *_slices(handle, gpu, is_ours)]
        ]
        return devices, _text(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: _Handle, by_uuid: Mapping[str, _Handle], is_ours: IsOurs) -> WorkerDevice:
    total, free = _memory_bytes(handle)
    capability = _reading(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    mig = _reading(pynvml.nvmlDeviceGetMigMode, handle)
    sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    return WorkerDevice(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        uuid=_uuid(handle),
        memory_gib=round(total / _GIB, 2),
        free_gib=round(free / _GIB, 2),
        compute_capability="{}.{}".format(*capability) if capability else None,
        mig=bool(mig and mig[0]),
        nvlink_peers=_nvlink_peers(handle, by_uuid),
        pcie_paths=_pcie_paths(handle, by_uuid),
        sm_clock_mhz=_reading(pynvml.nvmlDeviceGetClockInfo, handle, sm),
        max_sm_clock_mhz=_reading(pynvml.nvmlDeviceGetMaxClockInfo, handle, sm),
        memory_clock_mhz=_reading(pynvml.nvmlDeviceGetClockInfo, handle, memory),
        max_memory_clock_mhz=_reading(pynvml.nvmlDeviceGetMaxClockInfo, handle, memory),
        foreign_processes=_foreign(handle, is_ours),
    )


def _slices(handle: _Handle, gpu: WorkerDevice, is_ours: IsOurs) -> list[WorkerDevice]:
    """Return the MIG instances of a GPU; a place without one says so by an error."""
    if not gpu.mig:
        return []
    places = range(_reading(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0)
    found = [
        _reading(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place) for place in places
    ]
    return [_slice(instance, gpu, is_ours) for instance in found if instance is not None]


def _slice(instance: _Handle, gpu: WorkerDevice, is_ours: IsOurs) -> WorkerDevice:
    """Return one MIG instance; clocks are those of the GPU, links it has none."""
    total, free = _memory_bytes(instance)
    return msgspec.structs.replace(
        gpu,
        name=_text(pynvml.nvmlDeviceGetName(instance)),
        uuid=_uuid(instance),
        memory_gib=round(total / _GIB, 2),
        free_gib=round(free / _GIB, 2),
        mig=False,
        slice_of=gpu.uuid,
        nvlink_peers=[],
        pcie_paths={},
        foreign_processes=_foreign(instance, is_ours),
    )


def _memory_bytes(handle: _Handle) -> tuple[int, int]:
    """Return total and free bytes; a GPU that shares the host's memory has none of its own."""
    memory = _reading(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None:
        return int(memory.total), int(memory.free)
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page


def _nvlink_peers(handle: _Handle, by_uuid: Mapping[str, _Handle]) -> list[str]:
    """UUIDs at the other end of active links; a part without NVLink has none."""
    addresses = {_bus_id(other): uuid for uuid, other in by_uuid.items()}
    peers = set()
    for link in range(_MAX_LINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = _text(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
        except pynvml.NVMLError:
            break
        peers.add(addresses.get(remote, f"switch:{remote}"))
    return sorted(peers)


def _pcie_paths(handle: _Handle, by_uuid: Mapping[str, _Handle]) -> dict[str, PciePath]:
    """Return how near every other GPU is; what the driver does not say is left out."""
    mine = _uuid(handle)
    levels = {
        uuid: _reading(pynvml.nvmlDeviceGetTopologyCommonAncestor, handle, other)
        for uuid, other in by_uuid.items()
        if uuid != mine
    }
    return {uuid: _PATHS[level] for uuid, level in levels.items() if level in _PATHS}


def _foreign(handle: _Handle, is_ours: IsOurs) -> int:
    """Return how many processes of others compute on it; none where the driver does not tell."""
    found = _reading(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return sum(not is_ours(process.pid) for process in found)


def _reading(read: Callable[..., Any], *of: Any) -> Any:  # noqa: ANN401  # as the library has it
    """Return a figure, or None where the part or the driver does not have it."""
    try:
        return read(*of)
    except pynvml.NVMLError:
        return None


def _bus_id(handle: _Handle) -> str:
    return _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)


def _uuid(handle: _Handle) -> str:
    return _text(pynvml.nvmlDeviceGetUUID(handle))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
