"""Launch settings under vLLM's own names, and the engine they are for."""

from typing import Annotated, Literal

from msgspec import Meta

from api_schemas.base import EngineVersionText, Json, Value
from api_schemas.engine_settings import OtherSettings

_BIG = 10**15
Count = Annotated[int, Meta(ge=-1, le=_BIG)]


class EngineConfig(OtherSettings, frozen=True, kw_only=True):
    """vLLM settings in snake case; absent means left to vLLM.

    Ranges are wide on purpose: a value that vLLM would refuse is answered with a finding,
    not with a problem.
    """

    tensor_parallel_size: Count | None = None
    pipeline_parallel_size: Count | None = None
    data_parallel_size: Count | None = None
    decode_context_parallel_size: Count | None = None
    prefill_context_parallel_size: Count | None = None
    enable_expert_parallel: bool | None = None
    gpu_memory_utilization: Annotated[float, Meta(ge=-1, le=1000)] | None = None
    kv_cache_memory_bytes: Count | None = None
    num_gpu_blocks_override: Count | None = None
    max_model_len: Count | Literal["auto"] | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_num_partial_prefills: Count | None = None
    long_prefill_token_threshold: Count | None = None
    enable_chunked_prefill: bool | None = None
    enable_prefix_caching: bool | None = None
    block_size: Count | None = None
    kv_cache_dtype: Annotated[str, Meta(max_length=64)] | None = None
    quantization: Annotated[str, Meta(max_length=64)] | None = None
    dtype: Annotated[str, Meta(max_length=64)] | None = None
    enforce_eager: bool | None = None
    swap_space: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    cpu_offload_gb: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    kv_offloading_size: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    async_scheduling: bool | None = None
    scheduling_policy: Annotated[str, Meta(max_length=64)] | None = None
    watermark: Annotated[float, Meta(ge=-1, le=1000)] | None = None
    performance_mode: Annotated[str, Meta(max_length=64)] | None = None
    speculative_config: dict[str, Json] | None = None
    max_cudagraph_capture_size: Count | None = None
    cudagraph_capture_sizes: Annotated[list[Count], Meta(max_length=4096)] | None = None
    limit_mm_per_prompt: dict[str, Json] | None = None
    language_model_only: bool | None = None
    disable_custom_all_reduce: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    mamba_ssm_cache_dtype: Annotated[str, Meta(max_length=64)] | None = None
    enable_lora: bool | None = None
    max_loras: Count | None = None
    max_lora_rank: Count | None = None
    trust_remote_code: bool | None = None


class Engine(Value, frozen=True, kw_only=True):
    """A vLLM release with its settings and environment."""

    version: EngineVersionText | None = None
    config: EngineConfig | None = None
    env: (
        Annotated[
            dict[
                Annotated[
                    str, Meta(min_length=1, max_length=128, pattern=r"^[A-Z_][A-Z0-9_]*$(?!\n)")
                ],
                Annotated[str, Meta(max_length=4096)],
            ],
            Meta(max_length=256, description="Environment variables of the server."),
        ]
        | None
    ) = None
