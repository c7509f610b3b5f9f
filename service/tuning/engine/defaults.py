"""What vLLM fills in for settings that are left out, per release, GPU and entry point.

Sources: `vllm/engine/arg_utils.py`, `vllm/config/*.py` and `vllm/platforms/*.py` of the releases
0.8.0 to 0.33.0; each function names what it follows.
"""

from typing import Literal, TypeVar

from msgspec.structs import replace

from api_schemas.engine import EngineConfig
from service.tuning.engine.batch_limits import Usage, batch_limits
from service.tuning.engine.block_size import default_block_size
from service.tuning.engine.graphs import capture_sizes
from service.tuning.engine.platform import (
    generation,
    is_cpu,
    is_datacenter_blackwell,
    model_runner,
    speculative_method,
    supports_bfloat16,
)
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.models.spec import LatentAttention, ModelSpec

__all__ = ["Usage", "effective_config"]

_T = TypeVar("_T")
_ASYNC_DRAFTERS = frozenset(
    {"eagle", "eagle3", "mtp", "ngram_gpu", "draft_model", "dspark", "dflash"}
)
"""Speculation that async scheduling supports on Model Runner V1: vllm 0.33.0 config/vllm.py."""
_ASYNC_EXECUTORS = frozenset({None, "mp", "uni", "external_launcher"})
_V0_LONG_CONTEXT_TOKENS = 32_768
"""V0 turned chunked prefill on above this length: vllm 0.5.3 to 0.10.2 engine/arg_utils.py."""
_AUTO_LENGTH = -1
_EIGHT_BITS = 8
_FLOAT_NAMES: dict[str, Literal["float16", "float32"]] = {"half": "float16", "float": "float32"}


def effective_config(
    config: EngineConfig | None,
    *,
    spec: ModelSpec,
    node: Node,
    version: EngineVersion,
    usage: Usage = "serve",
) -> EngineConfig:
    """Return `config` with every default filled in that memory and latency depend on.

    `usage` is the entry point: `vllm serve`, or the `LLM` class whose batch limits differ.
    A `max_model_len` of "auto" stays, since it takes the memory plan to resolve it.
    """
    filled = _with_parallelism(config or EngineConfig())
    filled = _with_caches(filled, spec=spec, node=node, version=version)
    limits = batch_limits(filled, spec=spec, node=node, version=version, usage=usage)
    filled = replace(filled, max_num_batched_tokens=limits.tokens, max_num_seqs=limits.seqs)
    sizes = capture_sizes(filled, node=node, version=version)
    return replace(
        filled,
        async_scheduling=_async_scheduling(filled, spec=spec, gpu=node.gpu, version=version),
        cudagraph_capture_sizes=list(sizes),
        max_cudagraph_capture_size=max(sizes, default=0),
    )


def _with_parallelism(config: EngineConfig) -> EngineConfig:
    return replace(
        config,
        tensor_parallel_size=_given(config.tensor_parallel_size, 1),
        pipeline_parallel_size=_given(config.pipeline_parallel_size, 1),
        data_parallel_size=_given(config.data_parallel_size, 1),
        decode_context_parallel_size=_given(config.decode_context_parallel_size, 1),
        enable_expert_parallel=bool(config.enable_expert_parallel),
        enforce_eager=bool(config.enforce_eager),
    )


def _with_caches(
    config: EngineConfig, *, spec: ModelSpec, node: Node, version: EngineVersion
) -> EngineConfig:
    """Fill in lengths, number formats and what the KV cache is made of."""
    gpu = node.gpu
    config = replace(
        config,
        max_model_len=_max_model_len(config, spec=spec),
        dtype=_dtype(config, spec=spec, gpu=gpu, version=version),
        kv_cache_dtype=_kv_cache_dtype(config, spec=spec, gpu=gpu, version=version),
        gpu_memory_utilization=_given(
            config.gpu_memory_utilization, default_gpu_memory_utilization(version)
        ),
    )
    config = replace(
        config, enable_chunked_prefill=_chunked_prefill(config, gpu=gpu, version=version)
    )
    return replace(
        config,
        enable_prefix_caching=_prefix_caching(config, spec=spec, gpu=gpu, version=version),
        block_size=_given(
            config.block_size, default_block_size(config, spec=spec, gpu=gpu, version=version)
        ),
    )


def default_gpu_memory_utilization(version: EngineVersion) -> float:
    """Return the share of the total memory that is claimed by default: vllm config/cache.py."""
    return 0.92 if version.since("0.20.0") else 0.9


def _max_model_len(config: EngineConfig, *, spec: ModelSpec) -> int | Literal["auto"]:
    """Return the length in force; LongRoPE models start at their original length by default."""
    if config.max_model_len == _AUTO_LENGTH:
        return "auto"
    return _given(config.max_model_len, spec.default_max_model_len or spec.max_position_embeddings)


def _dtype(config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion) -> str:
    """Return the dtype of the activations, resolved from "auto".

    float32 checkpoints run in 16 bit, and GPUs without bfloat16 take float16: vllm
    config/model.py, 0.9.0 on; before, float32 became float16 everywhere.
    """
    given = config.dtype or "auto"
    if given != "auto":
        return _FLOAT_NAMES.get(given, given)
    if not supports_bfloat16(gpu) or spec.dtype == "float16":
        return "float16"
    if spec.dtype == "float32" and not version.since("0.9.0"):
        return "float16"
    return "bfloat16"


def _kv_cache_dtype(
    config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion
) -> str:
    """Return the format of the KV cache; "auto" is the model's dtype.

    A checkpoint with 8-bit KV scales turns "auto" into fp8; sparse latent attention stores fp8 in
    a layout of its own (vllm config/cache.py, model_executor/models/config.py).
    """
    given = config.kv_cache_dtype or "auto"
    mixers = [group.mixer for group in spec.layers if isinstance(group.mixer, LatentAttention)]
    is_sparse = any(mixer.index_topk is not None for mixer in mixers)
    if given == "auto":
        if spec.quantization is not None and spec.quantization.kv_cache_bits == _EIGHT_BITS:
            given = "fp8"
        elif _is_fp8_by_model(spec, gpu=gpu, version=version):
            given = "fp8_e4m3"
    return "fp8_ds_mla" if is_sparse and given in {"fp8", "fp8_e4m3"} else given


def _is_fp8_by_model(spec: ModelSpec, *, gpu: Gpu, version: EngineVersion) -> bool:
    """Whether the model asks for fp8 itself: GlmMoeDsaForCausalLM, vllm 0.33.0 models/config.py."""
    return (
        spec.architecture == "GlmMoeDsaForCausalLM"
        and version.since("0.33.0")
        and is_datacenter_blackwell(gpu)
    )


def _chunked_prefill(config: EngineConfig, *, gpu: Gpu, version: EngineVersion) -> bool:
    if config.enable_chunked_prefill is not None:
        return config.enable_chunked_prefill
    if generation(gpu, version) == "V1":
        return True
    length = config.max_model_len
    is_long = isinstance(length, int) and length > _V0_LONG_CONTEXT_TOKENS
    return is_long and version.since("0.5.3")


def _prefix_caching(
    config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion
) -> bool:
    """Return whether finished prefixes stay cached: on with V1, for hybrids from 0.26.0."""
    if config.enable_prefix_caching is not None:
        return config.enable_prefix_caching
    if generation(gpu, version) == "V0":
        return False
    return not spec.is_hybrid or version.since("0.26.0")


def _async_scheduling(
    config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion
) -> bool:
    """Return whether a step is scheduled while the one before still runs.

    On by default since 0.14.0 where executor, pipeline and drafter allow it; the CPU platform
    forces it off (vllm config/vllm.py, platforms/cpu.py).
    """
    if is_cpu(gpu) or not version.since("0.10.0"):
        return False
    if config.async_scheduling is not None:
        return config.async_scheduling
    if not version.since("0.14.0") or config.distributed_executor_backend not in _ASYNC_EXECUTORS:
        return False
    if model_runner(config, spec=spec, gpu=gpu, version=version) == "V2":
        return True
    method = speculative_method(config)
    is_drafter_fine = method is None or method in _ASYNC_DRAFTERS
    return is_drafter_fine and _given(config.pipeline_parallel_size, 1) <= 1


def _given(value: _T | None, default: _T) -> _T:
    return default if value is None else value
