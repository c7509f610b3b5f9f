"""Which accelerators, how many, and how they are linked."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import Gib, Name, NonNegativeFloat, Value

Interconnect = Literal["nvlink", "pcie", "xgmi", "none"]
Peak = Annotated[float, Meta(ge=0.01, le=1e6, description="Dense peak, TFLOP/s or TOP/s.")]


class GpuSpec(Value, frozen=True, kw_only=True):
    """A GPU that the catalogue lacks, described by its figures."""

    memory_gib: Annotated[
        float, Meta(ge=0.1, le=10_000, description="Memory per GPU as the driver reports it, GiB.")
    ]
    bandwidth_gb_s: Annotated[
        float, Meta(ge=1, le=1e6, description="Memory bandwidth, GB/s (10^9 bytes).")
    ]
    bf16_tflops: Annotated[
        float,
        Meta(ge=0.01, le=1e6, description="Dense 16-bit peak (bf16, or fp16 where bf16 lacks)."),
    ]
    compute_capability: Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,2}\.[0-9]$(?!\n)",
            description="CUDA compute capability such as 9.0; 0.0 for other vendors.",
        ),
    ]
    fp8_tflops: Peak | None = None
    int8_tops: Peak | None = None
    fp4_tflops: Peak | None = None
    link_gb_s: (
        Annotated[float, Meta(ge=0, le=1e5, description="GPU-to-GPU link, GB/s one way per GPU.")]
        | None
    ) = None
    pcie_gb_s: Annotated[float, Meta(ge=0.1, le=1e4)] | None = None
    unified_memory: bool = False


class Hardware(Value, frozen=True, kw_only=True):
    """The GPUs of one deployment."""

    gpu: Annotated[
        Name,
        Meta(
            description="Catalogue name, or an alias: what nvidia-smi prints, a cloud instance.",
            examples=["H100-SXM5-80GB", "NVIDIA H100 80GB HBM3", "p5.48xlarge"],
        ),
    ]
    gpus_per_node: Annotated[int, Meta(ge=1, le=128)] | None = None
    nodes: Annotated[int, Meta(ge=1, le=1024)] = 1
    interconnect: Interconnect | None = None
    total_memory_gib: (
        Annotated[
            float,
            Meta(ge=0.1, le=10_000, description="Per GPU as the driver reports it; overrides."),
        ]
        | None
    ) = None
    used_memory_gib: Annotated[
        Gib, Meta(description="Per GPU, held by others: desktop, exporters, another model.")
    ] = 0.0
    host_memory_gib: Gib | None = None
    price_per_gpu_hour: NonNegativeFloat | None = None
    spec: GpuSpec | None = None
