"""Example configurations and renderings that many tests share."""

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.slo import LatencyTarget, Slo
from service.tuning.engine.argv import given_settings
from service.tuning.engine.facts import is_known
from service.tuning.engine.versions import EngineVersion, parse_version
from service.tuning.hardware.spec import Gpu, Node, Vendor
from service.tuning.render.rendering import Rendering

VERSIONS = (
    "0.8.5",
    "0.10.2",
    "0.11.2",
    "0.14.0",
    "0.18.0",
    "0.20.0",
    "0.24.0",
    "0.28.0",
    "0.30.0",
    "0.33.0",
)

_COMMON: dict[str, Json] = {
    "gpu_memory_utilization": 0.9,
    "max_model_len": 8192,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 4096,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
}
CONFIGS: dict[str, dict[str, Json]] = {
    "defaults": {},
    "chat": {**_COMMON, "tensor_parallel_size": 1, "kv_cache_dtype": "fp8"},
    "batch": {
        **_COMMON,
        "tensor_parallel_size": 4,
        "gpu_memory_utilization": 0.95,
        "max_num_seqs": 512,
        "max_num_batched_tokens": 32768,
        "enable_prefix_caching": False,
        "performance_mode": "throughput",
        "swap_space": 4.0,
    },
    "long context": {
        **_COMMON,
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "max_model_len": 131072,
        "max_num_seqs": 32,
        "kv_cache_dtype": "fp8",
        "long_prefill_token_threshold": 4096,
        "kv_offloading_size": 64,
    },
    "realtime": {
        **_COMMON,
        "tensor_parallel_size": 2,
        "enforce_eager": False,
        "async_scheduling": True,
        "performance_mode": "interactivity",
        "stream_interval": 1,
        "scheduling_policy": "priority",
        "max_cudagraph_capture_size": 64,
    },
    "mixture": {
        **_COMMON,
        "data_parallel_size": 8,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_low_latency",
        "watermark": 0.01,
    },
    "speculation": {
        **_COMMON,
        "tensor_parallel_size": 4,
        "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
        "compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"},
    },
    "adapters": {**_COMMON, "enable_lora": True, "max_loras": 4, "max_lora_rank": 32},
    "images": {
        **_COMMON,
        "limit_mm_per_prompt": {"image": 2},
        "mm_processor_cache_gb": 8.0,
        "dtype": "bfloat16",
        "block_size": 32,
        "disable_custom_all_reduce": True,
        "trust_remote_code": False,
    },
    "pool": {**_COMMON, "kv_cache_memory_bytes": 40 * 2**30, "num_gpu_blocks_override": 4000},
    "small": {"max_model_len": "auto", "enforce_eager": True, "enable_chunked_prefill": False},
}
"""Names of configurations, and settings of which each release takes those that it knows."""


def config(name: str, version: EngineVersion) -> EngineConfig:
    """Return an example with the settings that the release knows."""
    wanted = dict(CONFIGS[name])
    if not version.since("0.14.0") and wanted.get("max_model_len") == "auto":
        del wanted["max_model_len"]
    return EngineConfig(**{n: value for n, value in wanted.items() if is_known(n, version)})


def gpu(vendor: Vendor = "nvidia", name: str = "H100-SXM5-80GB") -> Gpu:
    """Return a part of the vendor."""
    return Gpu(
        name=name,
        vendor=vendor,
        arch="any",
        gpu_class="datacenter",
        memory_gib=79.19,
        memory_gb_vendor=80,
        memory_is_verified=True,
        bandwidth_gb_s=3350,
        bf16_tflops=989,
        fp16_tflops=989,
        fp8_tflops=1979,
        int8_tops=1979,
        fp4_tflops=None,
        compute_capability=(9, 0) if vendor == "nvidia" else None,
        link_gb_s=450,
        pcie_gb_s=64,
    )


def node(*, vendor: Vendor = "nvidia", gpus_per_node: int = 16, nodes: int = 1) -> Node:
    """Return nodes of the vendor's part."""
    part = gpu(vendor)
    return Node(
        gpu=part,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        interconnect="nvlink",
        total_memory_gib=part.memory_gib,
        used_memory_gib=0,
        host_memory_gib=None,
        price_per_gpu_hour=None,
    )


SLO = Slo(
    targets=[
        LatencyTarget(metric="ttft", percentile=95, limit_ms=500),
        LatencyTarget(metric="itl", percentile=95, limit_ms=50),
        LatencyTarget(metric="tpot", percentile="mean", limit_ms=30),
    ]
)


def rendering(
    settings: EngineConfig | None = None, *, version: str = "0.33.0", **changes: Json
) -> Rendering:
    """Return a rendering of Llama 3.1 8B on one node."""
    values: dict[str, Json] = {
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "config": settings or EngineConfig(),
        "version": parse_version(version),
        "node": node(),
        "slo": SLO,
        **changes,
    }
    return Rendering(**values)


def stated(settings: EngineConfig) -> dict[str, Json]:
    """Return settings as a command line can state them: an off switch may be left unsaid."""
    return {name: v for name, v in given_settings(settings).items() if v is not False}
