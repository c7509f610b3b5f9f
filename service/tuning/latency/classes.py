"""The classes that coefficients are shared by: GPU generation, link, engine era, number format."""

from typing import Literal

from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu, Node

Link = Literal["nvlink", "xgmi", "pcie", "host", "network"]

_ERAS = (
    ("0.29.0", "0.29"),
    ("0.20.0", "0.20"),
    ("0.17.0", "0.17"),
    ("0.14.0", "0.14"),
    ("0.11.0", "0.11"),
    ("0.8.0", "0.8"),
)
"""Releases that the measurements tell apart: V1 (0.8), full graphs by default (0.11), async
scheduling (0.14), whole-sequence admission and new kernels (0.17 to 0.20), runner V2 (0.29)."""
_LOW_POWER_AMPERE = ("A10", "A2", "A16")


def era_of(version: EngineVersion) -> str:
    """Return the oldest release of the engine era that a release belongs to; v0 before 0.8."""
    return next((name for since, name in _ERAS if version.since(since)), "v0")


def eras_until(version: EngineVersion) -> tuple[str, ...]:
    """Return the eras whose changes a release holds, oldest first; v0 stands alone."""
    found = tuple(name for since, name in reversed(_ERAS) if version.since(since))
    return found or ("v0",)


def generation_of(gpu: Gpu) -> str:
    """Return the generation that shares kernels and memory: HBM and GDDR parts are apart."""
    arch = gpu.arch.lower().split()[0] if gpu.arch else "unknown"
    if gpu.vendor == "amd":
        return arch
    has_hbm = gpu.gpu_class == "datacenter" and gpu.bandwidth_gb_s > 900  # noqa: PLR2004
    if arch in {"ampere", "blackwell"}:
        return f"{arch}_hbm" if has_hbm else f"{arch}_gddr"
    return arch


def link_of(node: Node, *, ranks: int) -> tuple[Link, float]:
    """Return the link between `ranks` GPUs and its bandwidth, bytes per second one way.

    GeForce parts have no peer-to-peer access: what they exchange passes through host memory.
    """
    gpu = node.gpu
    if ranks > node.gpus_per_node:
        return "network", _NETWORK_BYTES_PER_S
    if node.interconnect == "xgmi" and gpu.link_gb_s > 0:
        return "xgmi", gpu.link_gb_s * 1e9
    if node.interconnect == "nvlink" and gpu.link_gb_s > 0:
        return "nvlink", gpu.link_gb_s * 1e9
    bandwidth = max(gpu.pcie_gb_s, 1.0) * 1e9
    return ("host", bandwidth) if gpu.gpu_class == "consumer" else ("pcie", bandwidth)


_NETWORK_BYTES_PER_S = 50e9
"""One 400 Gbit/s adapter per GPU, one way: the usual rail of an eight-GPU node."""
