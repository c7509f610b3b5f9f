"""What this node has: accelerators through the NVIDIA driver, else the CPU; vLLM environments."""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from api_schemas.worker import VllmEnvironment, WorkerDevice, WorkerNode
from service.queue import gpu_queue, node_queue
from service.tuning.provenance import setpoint_version
from workers.nvml import IsOurs, read_gpus
from workers.settings import WorkerSettings

_GIB = 1024**3
_VERSION_TIMEOUT_S = 120


def describe_node(settings: WorkerSettings) -> WorkerNode:
    """Return what this node is and has at this moment."""
    devices, driver = find_devices()
    now = datetime.now(UTC).isoformat()
    gpus = sorted({gpu_queue(device.name) for device in devices if not device.mig})
    return WorkerNode(
        node=settings.node,
        started_at=now,
        heartbeat_at=now,
        setpoint_version=setpoint_version(),
        driver=driver,
        devices=devices,
        environments=find_environments(settings.vllm_envs),
        queues=[node_queue(settings.node), *gpus],
    )


def find_devices(is_ours: IsOurs = lambda _: False) -> tuple[list[WorkerDevice], str | None]:
    """Return the node's accelerators and the driver version; the CPU when there is no driver.

    Processes that are ours do not count as foreign.
    """
    gpus, driver = read_gpus(is_ours)
    return gpus or [_cpu()], driver


def find_environments(folders: Iterable[Path]) -> list[VllmEnvironment]:
    """Return the vLLM environments at these paths; one that does not answer is left out."""
    found = (_environment(folder) for folder in folders)
    return sorted((item for item in found if item), key=lambda item: item.version)


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
    text = _installed_version(folder) or _stated_version(binary)
    match = re.search(r"(\d+\.\d+\.\d+\S*)", text or "")
    if match is None:
        return None
    version, _, local = match[1].partition("+")
    return VllmEnvironment(version=version, path=str(binary.absolute()), is_cpu="cpu" in local)


def _installed_version(folder: Path) -> str | None:
    """Return what the package's metadata says; asking the command itself takes many seconds."""
    found = sorted(folder.glob("lib/python*/site-packages/vllm-*.dist-info"))
    return found[0].name.removesuffix(".dist-info").removeprefix("vllm-") if found else None


def _stated_version(binary: Path) -> str | None:
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
    return done.stdout
