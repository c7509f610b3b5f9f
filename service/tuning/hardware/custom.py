"""A part that the catalogue lacks, from the figures in a request."""

from api_schemas.hardware import GpuSpec
from service.tuning.hardware.spec import Gpu, GpuClass, Vendor

_DEFAULT_PCIE_GB_S = 32.0
"""PCIe 4.0 x16, one way: what a request without the figure gets."""
_FIRST_BF16 = (8, 0)
_FIRST_BLACKWELL = (10, 0)
_ARCH = {(7, 0): "Volta", (7, 5): "Turing", (8, 9): "Ada", (9, 0): "Hopper"}


def custom_gpu(name: str, *, spec: GpuSpec, known: Gpu | None) -> Gpu:
    """Return the part that `spec` describes; `known` lends class, vendor and driver name.

    A peak that `spec` omits stays unknown: nothing is taken from another part.
    """
    major, minor = (int(number) for number in spec.compute_capability.split("."))
    capability = None if major == 0 else (major, minor)
    has_bf16 = capability is None or capability >= _FIRST_BF16
    return Gpu(
        name=name,
        vendor=_vendor(capability, known=known),
        arch=_arch(capability, known=known),
        gpu_class=_gpu_class(known),
        memory_gib=spec.memory_gib,
        memory_gb_vendor=None,
        memory_is_verified=True,
        bandwidth_gb_s=spec.bandwidth_gb_s,
        bf16_tflops=spec.bf16_tflops if has_bf16 else None,
        fp16_tflops=spec.bf16_tflops,
        fp8_tflops=spec.fp8_tflops,
        int8_tops=spec.int8_tops,
        fp4_tflops=spec.fp4_tflops,
        compute_capability=capability,
        link_gb_s=spec.link_gb_s or 0.0,
        pcie_gb_s=spec.pcie_gb_s or _DEFAULT_PCIE_GB_S,
        unified_memory=spec.unified_memory,
        is_custom=True,
        driver_name=known.driver_name if known else name,
    )


def _vendor(capability: tuple[int, int] | None, *, known: Gpu | None) -> Vendor:
    if capability is not None:
        return "nvidia"
    return known.vendor if known else "other"


def _gpu_class(known: Gpu | None) -> GpuClass:
    return known.gpu_class if known else "datacenter"


def _arch(capability: tuple[int, int] | None, *, known: Gpu | None) -> str:
    if capability is None:
        return known.arch if known else "unknown"
    if capability >= _FIRST_BLACKWELL:
        return "Blackwell"
    return _ARCH.get(capability, "Ampere" if capability[0] == _FIRST_BF16[0] else "Turing")
