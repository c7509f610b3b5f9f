"""Weights beside the checkpoint's own: adapters, drafters, and copies that kernels make."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import speculative_method
from service.tuning.engine.versions import EngineVersion
from service.tuning.memory.constants import memory_constants
from service.tuning.memory.plan import GIB
from service.tuning.memory.stage_cache import DRAFT_HEADS, attention_group
from service.tuning.models.inventory import (
    ParallelLayout,
    rank_draft_bytes,
    rank_weight_bytes,
)
from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
)

_DTYPE_BYTES = 2
_DEFAULT_RANK = 16
_DEFAULT_ADAPTERS = 1
_DRAFT_VOCABULARY = 32_000
"""Rows of the output head of published EAGLE-3 drafters."""
_DRAFT_INPUTS = {"eagle": 2, "eagle3": 3}
"""Hidden states that an EAGLE drafter joins into one."""
_ROW_ALIGN = 64
_LEAN_ROPE_SINCE = "0.32.0"
"""`mrope_positions_factor` is in the source of 0.32.0; a log of 0.29.0 has the longer table."""


def added_weight_bytes(
    spec: ModelSpec,
    layout: ParallelLayout,
    *,
    config: EngineConfig,
    version: EngineVersion,
    draft: ModelSpec | None,
    stage_share: float,
    is_last: bool,
) -> float:
    """Return the bytes on one rank beside the checkpoint's tensors.

    `stage_share` is the share of the layers on the rank's pipeline stage.
    """
    added = adapter_bytes(spec, layout, config=config) * stage_share
    added += early_mxfp4_bytes(spec, layout, version=version) * stage_share
    added += older_rope_bytes(spec, version=version)
    if is_last:
        added += drafter_bytes(spec, layout, config=config, draft=draft)
    return added


def adapter_bytes(spec: ModelSpec, layout: ParallelLayout, *, config: EngineConfig) -> float:
    """Return the slots of all LoRA adapters over all layers, bytes per tensor-parallel rank.

    vLLM allocates `max_loras` slots of `max_lora_rank` for attention and dense MLP: the first
    matrix of column-parallel layers is whole on every rank, as is the second of row-parallel ones.
    """
    if not config.enable_lora:
        return 0.0
    rank = config.max_lora_rank or _DEFAULT_RANK
    adapters = config.max_loras or _DEFAULT_ADAPTERS
    tp = layout.tensor_parallel_size
    width = sum(
        group.count
        * (_mixer_lora_width(group.mixer, spec, tp) + _mlp_lora_width(group.feed_forward, spec, tp))
        for group in spec.layers
    )
    return float(adapters * rank * width * _DTYPE_BYTES)


def drafter_bytes(
    spec: ModelSpec, layout: ParallelLayout, *, config: EngineConfig, draft: ModelSpec | None
) -> float:
    """Return the drafter's weights on one rank: its own model, an EAGLE head, or MTP layers."""
    method = speculative_method(config)
    if method is None:
        return 0.0
    alone = msgspec.structs.replace(layout, pipeline_parallel_size=1)
    if draft is not None:
        return rank_weight_bytes(draft, alone, stage=0)
    if method in DRAFT_HEADS:
        return _eagle_bytes(spec, alone, method)
    if method == "mtp" or method.endswith("_mtp"):
        return _mtp_bytes(spec, alone)
    return 0.0


def older_rope_bytes(spec: ModelSpec, *, version: EngineVersion) -> float:
    """Return what releases with longer rotary tables keep on every rank beside today's, bytes."""
    if version.since(_LEAN_ROPE_SINCE):
        return 0.0
    return float(
        sum(
            (cache.older_positions - cache.positions) * cache.dim * _DTYPE_BYTES
            for cache in spec.rope_caches
            if cache.older_positions is not None
        )
    )


def early_mxfp4_bytes(spec: ModelSpec, layout: ParallelLayout, *, version: EngineVersion) -> float:
    """Return what early releases add to mxfp4 experts on every rank of several, bytes."""
    facts = memory_constants()["mxfp4_marlin"]
    quantization = spec.quantization
    if layout.tensor_parallel_size == 1:
        return 0.0
    if quantization is None or quantization.scheme != "mxfp4" or version.since(facts["until"]):
        return 0.0
    experts = sum(
        group.count * group.feed_forward.num_experts
        for group in spec.layers
        if isinstance(group.feed_forward, MixtureOfExperts)
    )
    return float(facts["gib_per_thousand_experts"] * experts / 1000 * GIB)


def _mixer_lora_width(mixer: Mixer | None, spec: ModelSpec, tp: int) -> float:
    hidden = spec.hidden_size
    match mixer:
        case GroupedQueryAttention():
            query = mixer.num_heads * mixer.head_dim
            keys = mixer.num_kv_heads * (mixer.head_dim + mixer.v_head_dim)
            return 3 * hidden + (query + keys) / tp + query / tp + hidden
        case LatentAttention():
            query = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
            latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            out = mixer.num_heads * mixer.v_head_dim
            return 2 * hidden + query / tp + latent + out / tp + hidden
        case _:
            return 0.0


def _mlp_lora_width(part: FeedForward | None, spec: ModelSpec, tp: int) -> float:
    hidden = spec.hidden_size
    match part:
        case DenseFeedForward():
            inputs = 2 if part.gated else 1
            return inputs * (hidden + part.intermediate_size / tp) + (
                part.intermediate_size / tp + hidden
            )
        case MixtureOfExperts() | None:
            return 0.0


def _eagle_bytes(spec: ModelSpec, layout: ParallelLayout, method: str) -> float:
    """Return one decoder layer, the join of hidden states, and EAGLE-3's own small head."""
    layer = LayerGroup(count=1, mixer=attention_group(spec).mixer, feed_forward=_dense_part(spec))
    plain = msgspec.structs.replace(spec, quantization=None)
    size = _layers_alone_bytes(plain, (layer,), layout)
    size += _DRAFT_INPUTS[method] * spec.hidden_size**2 * _DTYPE_BYTES
    if method == "eagle3":
        head = _DRAFT_VOCABULARY * spec.hidden_size * _DTYPE_BYTES
        size += head / layout.tensor_parallel_size
    return size


def _mtp_bytes(spec: ModelSpec, layout: ParallelLayout) -> float:
    """Return the MTP layers of the checkpoint; one plain attention layer when it states none."""
    if spec.mtp_layer is not None:
        return rank_draft_bytes(spec, layout)
    return _layers_alone_bytes(spec, (attention_group(spec),), layout)


def _dense_part(spec: ModelSpec) -> FeedForward | None:
    dense = [g.feed_forward for g in spec.layers if isinstance(g.feed_forward, DenseFeedForward)]
    return dense[0] if dense else DenseFeedForward(intermediate_size=4 * spec.hidden_size)


def _layers_alone_bytes(
    spec: ModelSpec, layers: tuple[LayerGroup, ...], layout: ParallelLayout
) -> float:
    """Return the bytes of these layers without embedding, head, tower and tables."""
    alone = msgspec.structs.replace(
        spec,
        layers=layers,
        layer_order=(),
        vocab_size=_ROW_ALIGN,
        tie_word_embeddings=True,
        vision=None,
        rope_caches=(),
        learned_positions=0,
        per_layer_vocab_size=0,
        mtp_layers=0,
        mtp_layer=None,
        weights_bytes=None,
    )
    return rank_weight_bytes(alone, layout, stage=0)
