"""The cache of one pipeline stage: which layers keep what, under which rules."""

from collections import Counter
from collections.abc import Iterator

from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import (
    generation,
    model_runner,
    speculative_method,
    speculative_tokens,
)
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory.cache_layers import (
    TURBOQUANT_PLAIN_LAYERS,
    CacheLayer,
    cache_layer,
)
from service.tuning.memory.kv_plan import KvLayout, KvRules, kv_layout
from service.tuning.models.spec import (
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    Mixer,
    ModelSpec,
)

DRAFT_HEADS = ("eagle", "eagle3")
"""Methods whose drafter is one layer of the model's own make."""
_CHUNKED_GROUPS_SINCE = "0.12.0"
"""Before, vLLM switched its group manager off for chunked local attention by default."""
_STATE_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def cache_rules(
    *, spec: ModelSpec, node: Node, config: EngineConfig, version: EngineVersion
) -> KvRules:
    """Return the settings and release facts that shape the KV plan."""
    is_legacy = generation(node.gpu, version) == "V0"
    tokens = config.max_num_batched_tokens or 1
    has_groups = version.since("0.9.1") and not config.disable_hybrid_kv_cache_manager
    if not version.since(_CHUNKED_GROUPS_SINCE) and _has_chunks(spec):
        has_groups = False
    return KvRules(
        version=version,
        is_legacy=is_legacy,
        block_size=max(1, config.block_size or 16),
        decode_context_parallel_size=max(1, config.decode_context_parallel_size or 1),
        in_flight_tokens=tokens * _concurrent_batches(spec, node, config, version),
        speculative_tokens=speculative_tokens(config),
        checkpoints_state=bool(config.enable_prefix_caching),
        has_group_manager=has_groups and not is_legacy,
    )


def stage_layout(
    layer_indices: tuple[int, ...],
    *,
    spec: ModelSpec,
    config: EngineConfig,
    rules: KvRules,
    is_last_stage: bool,
    draft: ModelSpec | None,
) -> KvLayout | None:
    """Return how the layers of one stage share blocks; None when none keeps anything."""
    counts = _stage_counts(layer_indices, spec=spec, config=config, rules=rules)
    if is_last_stage:
        counts.update(_draft_layers(spec=spec, config=config, rules=rules, draft=draft))
    return kv_layout(counts, rules)


def resolved_kv_cache_dtype(config: EngineConfig) -> str:
    """Return the format of the KV cache with "auto" replaced by the model's dtype."""
    given = config.kv_cache_dtype or "auto"
    return (config.dtype or "bfloat16") if given == "auto" else given


def _concurrent_batches(
    spec: ModelSpec, node: Node, config: EngineConfig, version: EngineVersion
) -> int:
    """Return the batches in flight at once, which sliding layers reserve room for from 0.26."""
    if not version.since("0.26.0"):
        return 1
    stages = max(1, config.pipeline_parallel_size or 1)
    if not config.async_scheduling:
        return stages
    runner = model_runner(config, spec=spec, gpu=node.gpu, version=version)
    return stages + 1 if runner == "V2" or stages == 1 else stages


def _has_chunks(spec: ModelSpec) -> bool:
    mixers = (group.mixer for group in spec.layers)
    return any(isinstance(mixer, GroupedQueryAttention) and mixer.chunk for mixer in mixers)


def _stage_counts(
    layer_indices: tuple[int, ...], *, spec: ModelSpec, config: EngineConfig, rules: KvRules
) -> Counter[CacheLayer]:
    """Return how many layers of the stage keep the same."""
    dtype = resolved_kv_cache_dtype(config)
    plain = _plain_layers(spec, dtype)
    found: Counter[CacheLayer] = Counter()
    for indices, layer_dtype in (
        (tuple(layer for layer in layer_indices if layer not in plain), dtype),
        (tuple(layer for layer in layer_indices if layer in plain), "auto"),
    ):
        for group, count in _group_counts(indices, spec):
            layer = _cache_layer(group.mixer, layer_dtype, spec=spec, config=config, rules=rules)
            if layer is not None:
                found[layer] += count
    return found


def _group_counts(
    layer_indices: tuple[int, ...], spec: ModelSpec
) -> Iterator[tuple[LayerGroup, int]]:
    """Yield the layer groups of these layers with how many layers of each are among them."""
    if len(layer_indices) == spec.num_layers:
        yield from ((group, group.count) for group in spec.layers)
        return
    order = spec.layer_order or tuple(
        index for index, group in enumerate(spec.layers) for _ in range(group.count)
    )
    counts = Counter(order[layer] for layer in layer_indices)
    yield from ((spec.layers[index], count) for index, count in counts.items())


def _plain_layers(spec: ModelSpec, dtype: str) -> frozenset[int]:
    """Return the attention layers that turboquant leaves in 16 bit: the outer ones if dense."""
    if not dtype.startswith("turboquant") or spec.is_hybrid:
        return frozenset()
    last = spec.num_layers
    outer = min(TURBOQUANT_PLAIN_LAYERS, last // 2)
    return frozenset(range(outer)) | frozenset(range(last - outer, last))


def _cache_layer(
    mixer: Mixer | None, dtype: str, *, spec: ModelSpec, config: EngineConfig, rules: KvRules
) -> CacheLayer | None:
    if mixer is None:
        return None
    return cache_layer(
        mixer,
        kv_cache_dtype=dtype,
        tensor_parallel_size=max(1, config.tensor_parallel_size or 1),
        speculative_tokens=rules.speculative_tokens,
        state_element_bytes=_STATE_DTYPE_BYTES.get(
            config.mamba_ssm_cache_dtype or "", _default_state_bytes(spec, config)
        ),
    )


def _default_state_bytes(spec: ModelSpec, config: EngineConfig) -> int:
    """Return the bytes of a state's element when no setting names them."""
    return max(spec.ssm_state_bytes, _STATE_DTYPE_BYTES.get(config.dtype or "", 0))


def _draft_layers(
    *, spec: ModelSpec, config: EngineConfig, rules: KvRules, draft: ModelSpec | None
) -> list[CacheLayer]:
    """Return what the drafter keeps: its own layers, or one of the model's attention layers."""
    method = speculative_method(config)
    dtype = resolved_kv_cache_dtype(config)
    if method is None or rules.speculative_tokens == 0:
        return []
    if draft is not None:
        groups: tuple[LayerGroup, ...] = draft.layers
    elif method == "mtp" or method.endswith("_mtp") or method in DRAFT_HEADS:
        groups = (attention_group(spec),)
    else:
        return []
    found = [
        _cache_layer(group.mixer, dtype, spec=spec, config=config, rules=rules)
        for group in groups
        for _ in range(group.count)
    ]
    return [layer for layer in found if layer is not None]


def attention_group(spec: ModelSpec) -> LayerGroup:
    """Return one layer of full attention as the model has it, which its drafter repeats."""
    if spec.mtp_layer is not None:
        return LayerGroup(count=1, mixer=spec.mtp_layer.mixer, feed_forward=None)
    attention = [
        g for g in spec.layers if isinstance(g.mixer, GroupedQueryAttention | LatentAttention)
    ]
    full = [g for g in attention if not _is_local(g.mixer)] or attention or list(spec.layers)
    return LayerGroup(count=1, mixer=full[0].mixer, feed_forward=None)


def _is_local(mixer: Mixer | None) -> bool:
    return isinstance(mixer, GroupedQueryAttention) and bool(mixer.window or mixer.chunk)
