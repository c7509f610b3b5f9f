"""An accelerator and the node it sits in, as the core sees them."""

from typing import Literal

import msgspec

from api_schemas.hardware import Interconnect

Vendor = Literal["nvidia", "amd", "intel", "cpu", "other"]
GpuClass = Literal["datacenter", "workstation", "consumer", "integrated", "cpu"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One accelerator. Decimal units for rates (GB/s, TFLOPS), GiB for memory."""

    name: str
    """Catalogue name, such as H100-SXM5-80GB."""
    vendor: Vendor
    arch: str
    """Generation: Turing, Ampere, Ada, Hopper, Blackwell, CDNA3, ..."""
    gpu_class: GpuClass
    memory_gib: float
    """What the driver reports, GiB; every fit is computed from it."""
    memory_gb_vendor: float | None
    memory_is_verified: bool
    """Whether `memory_gib` was read from a driver (else derived from the vendor's figure)."""
    bandwidth_gb_s: float
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    int8_tops: float | None
    fp4_tflops: float | None
    compute_capability: tuple[int, int] | None
    """CUDA compute capability; None for other vendors."""
    link_gb_s: float
    """GPU-to-GPU link (NVLink, xGMI), GB/s one way per GPU; 0 when there is none."""
    pcie_gb_s: float
    unified_memory: bool = False
    is_custom: bool = False
    driver_name: str = ""
    """The device name the driver prints; vLLM's defaults look into it."""

    @property
    def kind(self) -> str:
        """What people call it: GPU, or CPU."""
        return "CPU" if self.vendor == "cpu" else "GPU"

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice of a GPU."""
        return " MIG " in self.name

    @property
    def dense_16bit_tflops(self) -> float:
        """Peak of the 16-bit type that the part supports, TFLOPS."""
        return self.bf16_tflops or self.fp16_tflops or 0.0


class Node(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The GPUs of one deployment."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    interconnect: Interconnect
    total_memory_gib: float
    """Per GPU, as stated by the caller or else `gpu.memory_gib`."""
    used_memory_gib: float
    host_memory_gib: float | None
    price_per_gpu_hour: float | None

    @property
    def num_gpus(self) -> int:
        """GPUs in all nodes."""
        return self.gpus_per_node * self.nodes
