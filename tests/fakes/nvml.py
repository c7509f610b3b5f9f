# ruff: noqa: N802, N816, D101  # the names are those of the driver's library
"""Stands in for `pynvml` in a worker's process: L4s on one host, two under each PCIe switch.

A test copies it under the library's name to where the worker's interpreter looks first, and names
the GPUs in the environment.
"""

import os
from pathlib import Path
from types import SimpleNamespace

NVML_TOPOLOGY_INTERNAL = 0
NVML_TOPOLOGY_SINGLE = 10
NVML_TOPOLOGY_MULTIPLE = 20
NVML_TOPOLOGY_HOSTBRIDGE = 30
NVML_TOPOLOGY_NODE = 40
NVML_TOPOLOGY_SYSTEM = 50
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
c_nvmlDevice_t = int
UUIDS = os.environ["FAKE_GPUS"].split(",")  # noqa: TID251
_GIB = 1024**3


class NVMLError(Exception): ...


def nvmlInit() -> None: ...


def nvmlShutdown() -> None: ...


def nvmlSystemGetDriverVersion() -> str:
    return "570.0-fake"


def nvmlDeviceGetCount() -> int:
    return len(UUIDS)


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA L4"


def nvmlDeviceGetUUID(handle: int) -> str:
    return UUIDS[handle]


def nvmlDeviceGetPciInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(busId=f"00000000:0{handle + 1}:00.0")


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=24 * _GIB, free=24 * _GIB)


def nvmlDeviceGetCudaComputeCapability(handle: int) -> tuple[int, int]:
    return 8, 9


def nvmlDeviceGetMigMode(handle: int) -> tuple[int, int]:
    raise NVMLError


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    return 2040


def nvmlDeviceGetMaxClockInfo(handle: int, kind: int) -> int:
    return 2040


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    """Return the processes that see the GPU: of real ones those that took memory on it."""
    return [
        SimpleNamespace(pid=int(entry.name))
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and UUIDS[handle] in _visible_to(entry)
    ]


def _visible_to(entry: Path) -> list[str]:
    try:
        variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
    found = [text for text in variables if text.startswith("CUDA_VISIBLE_DEVICES=")]
    return found[0].partition("=")[2].split(",") if found else []


def nvmlDeviceGetTopologyCommonAncestor(handle: int, other: int) -> int:
    return NVML_TOPOLOGY_SINGLE if handle // 2 == other // 2 else NVML_TOPOLOGY_NODE


def nvmlDeviceGetNvLinkState(handle: int, link: int) -> int:
    raise NVMLError
