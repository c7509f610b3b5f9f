"""The legal values of settings: what a search may choose from, by the same facts as the rules."""

from collections.abc import Mapping

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.models.spec import GroupedQueryAttention, LatentAttention, ModelSpec
from service.tuning.rules.base import positive_int
from service.tuning.rules.kv_support import kv_cache_dtype_support
from service.tuning.rules.package_data import entry_for, read_rules_data
from service.tuning.rules.sharding import Obstacle, find_obstacle
from service.tuning.rules.support import Support, quantization_support, recommended_dtype

__all__ = [
    "Obstacle",
    "Support",
    "find_obstacle",
    "kv_cache_dtype_support",
    "legal_decode_context_parallel_sizes",
    "legal_tensor_parallel_sizes",
    "minimum_batched_tokens",
    "multimodal_floor_tokens",
    "multimodal_started_tokens",
    "quantization_support",
    "recommended_dtype",
]

_LARGEST_TENSOR_PARALLEL = 1024


def legal_tensor_parallel_sizes(
    spec: ModelSpec,
    *,
    num_gpus: int,
    version: EngineVersion,
    enable_expert_parallel: bool = False,
    data_parallel_size: int = 1,
) -> tuple[int, ...]:
    """Return every tensor-parallel size up to `num_gpus` that vLLM accepts for the model."""
    return tuple(
        size
        for size in range(1, min(num_gpus, _LARGEST_TENSOR_PARALLEL) + 1)
        if find_obstacle(
            spec,
            tensor_parallel_size=size,
            version=version,
            enable_expert_parallel=enable_expert_parallel,
            data_parallel_size=data_parallel_size,
        )
        is None
    )


def legal_decode_context_parallel_sizes(
    spec: ModelSpec, *, tensor_parallel_size: int, version: EngineVersion
) -> tuple[int, ...]:
    """Return the decode context parallel sizes that vLLM accepts at this tensor parallelism.

    It divides tensor parallelism, and with grouped KV heads only the surplus ranks can share
    the context: vLLM config/model.py, 0.10.2 to 0.33.0.
    """
    if not version.since("0.10.2") or spec.is_hybrid:
        return (1,)
    divisors = [
        size for size in range(1, tensor_parallel_size + 1) if tensor_parallel_size % size == 0
    ]
    return tuple(
        size
        for size in divisors
        if size == 1 or dcp_obstacle(spec, tensor_parallel_size, decode_context=size) is None
    )


def dcp_obstacle(spec: ModelSpec, tensor_parallel_size: int, *, decode_context: int) -> str | None:
    """Return why the decode context parallel size is refused, or None."""
    if tensor_parallel_size % decode_context:
        return f"it does not divide tensor_parallel_size={tensor_parallel_size}"
    for group in spec.layers:
        mixer = group.mixer
        if not isinstance(mixer, GroupedQueryAttention):
            continue
        if tensor_parallel_size <= mixer.num_kv_heads:
            return f"tensor_parallel_size must exceed the {mixer.num_kv_heads} KV heads"
        if decode_context > tensor_parallel_size // mixer.num_kv_heads:
            return f"only {tensor_parallel_size // mixer.num_kv_heads} ranks share each KV head"
        if (mixer.num_heads // mixer.num_kv_heads) % decode_context:
            return "the query heads of one KV head do not divide by it"
    return None


def has_latent_attention(spec: ModelSpec) -> bool:
    """Whether the cache holds latents, which tensor parallelism never divides."""
    return any(isinstance(group.mixer, LatentAttention) for group in spec.layers)


def multimodal_floor_tokens(spec: ModelSpec, config: EngineConfig, version: EngineVersion) -> int:
    """Return the tokens of the largest item that must fit one step whole; 0 when none must.

    Only models whose image tokens attend to each other switch the cutting of items off.
    """
    return int(_whole_item(spec, config, version).get("tokens", 0))


def multimodal_started_tokens(spec: ModelSpec, config: EngineConfig, version: EngineVersion) -> int:
    """Return the least step budget that such a model is known to have started with."""
    item = _whole_item(spec, config, version)
    return int(item.get("started_with", item.get("tokens", 0)))


def _whole_item(
    spec: ModelSpec, config: EngineConfig, version: EngineVersion
) -> Mapping[str, Json]:
    if not spec.is_multimodal or disables_media(config):
        return {}
    floors = read_rules_data("multimodal")["whole_item_tokens"].get(spec.architecture, [])
    return entry_for(floors, version)


def disables_media(config: EngineConfig) -> bool:
    """Whether the settings allow no image, video or audio at all."""
    limits = config.limit_mm_per_prompt
    no_items = bool(limits) and all(limit == 0 for limit in (limits or {}).values())
    return config.language_model_only is True or no_items


def minimum_batched_tokens(
    spec: ModelSpec,
    config: EngineConfig,
    version: EngineVersion,
    *,
    aligned_block_tokens: int | None = None,
) -> int:
    """Return the least `max_num_batched_tokens` that vLLM accepts with these settings.

    `config` is effective. `aligned_block_tokens` is the enlarged block of a recurrent hybrid,
    which must fit one step when its states are cached by prefix.
    Sources: vLLM config/scheduler.py, config/vllm.py and v1/core/encoder_cache_manager.py.
    """
    floors = [1, positive_int(config.max_num_seqs) or 1]
    if config.enable_chunked_prefill is False:
        floors.append(positive_int(config.max_model_len) or 1)
    floors.append(multimodal_floor_tokens(spec, config, version))
    if aligned_block_tokens and spec.is_hybrid and config.enable_prefix_caching:
        floors.append(aligned_block_tokens)
    return max(floors)
