"""Lists the weights of one layer, mixer by mixer and part by part."""

from collections.abc import Iterator

from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelSpec,
    StateSpace,
)
from service.tuning.models.tensors import LayerWeights, WeightKind, WeightTensor


def layer_tensors(spec: ModelSpec, group: LayerGroup, make: LayerWeights) -> Iterator[WeightTensor]:
    """Yield the weights of one layer of this make."""
    if group.mixer is not None:
        yield from _mixer(spec, group.mixer, make)
    if group.feed_forward is not None:
        yield from _feed_forward(spec, group.feed_forward, make)
    yield make.plain(
        "norms", "norm", spec.norms_per_layer * spec.hidden_size, sharding="replicated"
    )
    if spec.per_layer_input_size:
        width = 2 * spec.hidden_size * spec.per_layer_input_size
        yield make.linear("per_layer_input", "dense_mlp", width, sharding="replicated")


def _mixer(spec: ModelSpec, mixer: Mixer, make: LayerWeights) -> Iterator[WeightTensor]:
    match mixer:
        case GroupedQueryAttention():
            yield from _grouped_query(spec.hidden_size, mixer, make)
        case LatentAttention():
            yield from _latent(spec.hidden_size, mixer, make)
        case LinearAttention():
            yield from _linear_attention(spec.hidden_size, mixer, make)
        case StateSpace():
            yield from _state_space(spec.hidden_size, mixer, make)


def _grouped_query(
    hidden: int, mixer: GroupedQueryAttention, make: LayerWeights
) -> Iterator[WeightTensor]:
    query = mixer.num_heads * mixer.head_dim
    key = mixer.num_kv_heads * mixer.head_dim
    value = mixer.num_kv_heads * mixer.v_head_dim
    yield make.linear(
        "self_attn.q_proj",
        "attention",
        hidden * query * (2 if mixer.output_gate else 1),
        fused="self_attn.qkv_proj",
    )
    for name, rows in (("k_proj", key), ("v_proj", value)) if mixer.projects_kv else ():
        yield make.linear(
            f"self_attn.{name}",
            "attention",
            hidden * rows,
            sharding="kv_heads",
            units=mixer.num_kv_heads,
            fused="self_attn.qkv_proj",
        )
    yield make.linear("self_attn.o_proj", "attention", mixer.num_heads * mixer.v_head_dim * hidden)
    if mixer.qkv_bias:
        yield make.plain("self_attn.qkv_proj.bias", "norm", query + key + value)


def _latent(hidden: int, mixer: LatentAttention, make: LayerWeights) -> Iterator[WeightTensor]:
    """MLA; the absorbed copy of `kv_b_proj` is what decoding multiplies with."""
    query = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    up = mixer.kv_lora_rank * mixer.num_heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    down = "self_attn.fused_qkv_a_proj"
    if mixer.q_lora_rank is None:
        yield make.linear("self_attn.q_proj", "attention", hidden * query)
    else:
        rank = mixer.q_lora_rank
        yield make.linear(
            "self_attn.q_a_proj", "attention", hidden * rank, sharding="replicated", fused=down
        )
        yield make.linear("self_attn.q_b_proj", "attention", rank * query)
    yield make.linear(
        "self_attn.kv_a_proj_with_mqa",
        "attention",
        hidden * latent,
        sharding="replicated",
        fused=down,
    )
    yield make.linear("self_attn.kv_b_proj", "attention", up)
    yield make.plain("self_attn.absorbed", "mla_absorbed", up)
    yield make.linear("self_attn.o_proj", "attention", mixer.num_heads * mixer.v_head_dim * hidden)
    if mixer.index_topk is not None:
        yield from _indexer(hidden, mixer, make)


def _indexer(hidden: int, mixer: LatentAttention, make: LayerWeights) -> Iterator[WeightTensor]:
    """The part of sparse MLA that picks tokens; every rank holds it whole."""
    source = mixer.q_lora_rank or hidden
    for name, parameters in (
        ("wq_b", source * mixer.index_num_heads * mixer.index_head_dim),
        ("wk", hidden * mixer.index_head_dim),
    ):
        yield make.linear(f"self_attn.indexer.{name}", "indexer", parameters, sharding="replicated")
    yield make.plain(
        "self_attn.indexer.weights_proj",
        "indexer",
        hidden * mixer.index_num_heads,
        sharding="replicated",
    )


def _linear_attention(
    hidden: int, mixer: LinearAttention, make: LayerWeights
) -> Iterator[WeightTensor]:
    key = mixer.num_key_heads * mixer.key_head_dim
    value = mixer.num_value_heads * mixer.value_head_dim
    kind: WeightKind = "linear_attention"
    for name, rows in (("in_proj_qkv", 2 * key + value), *_wide_gates(mixer, value)):
        yield make.linear(f"linear_attn.{name}", kind, hidden * rows, fused="linear_attn.in_proj")
    if mixer.kind == "gdn":
        yield make.plain("linear_attn.in_proj_ba", kind, 2 * hidden * mixer.num_value_heads)
    if mixer.kind == "kda":
        rank = mixer.value_head_dim
        for name in ("f", "g"):
            yield make.linear(
                f"linear_attn.{name}_a_proj", kind, hidden * rank, sharding="replicated"
            )
            yield make.linear(f"linear_attn.{name}_b_proj", kind, rank * value)
        yield make.plain("linear_attn.b_proj", kind, hidden * mixer.num_value_heads)
    if mixer.conv_kernel > 1:
        yield make.plain("linear_attn.conv1d", kind, (2 * key + value) * mixer.conv_kernel)
    yield make.linear("linear_attn.out_proj", kind, value * hidden)


def _wide_gates(mixer: LinearAttention, value: int) -> tuple[tuple[str, int], ...]:
    """Output gates as wide as the values: all but KDA, whose gates have a low rank."""
    return () if mixer.kind == "kda" else (("in_proj_z", value),)


def _state_space(hidden: int, mixer: StateSpace, make: LayerWeights) -> Iterator[WeightTensor]:
    inner = mixer.inner_size
    kind: WeightKind = "state_space"
    if mixer.kind == "mamba2":
        states = 2 * mixer.num_groups * mixer.state_size
        rows = 2 * inner + states + mixer.num_heads
        convolved = inner + states
    else:
        rows = 2 * inner
        convolved = inner
        ranked = mixer.time_step_rank + 2 * mixer.state_size
        yield make.linear("mixer.x_proj", kind, inner * ranked)
        yield make.linear("mixer.dt_proj", kind, mixer.time_step_rank * inner)
        yield make.plain("mixer.A", kind, inner * mixer.state_size, element_bytes=4)
    yield make.linear("mixer.in_proj", kind, hidden * rows)
    yield make.plain("mixer.conv1d", kind, convolved * mixer.conv_kernel)
    yield make.linear("mixer.out_proj", kind, inner * hidden)


def _feed_forward(spec: ModelSpec, part: FeedForward, make: LayerWeights) -> Iterator[WeightTensor]:
    if isinstance(part, DenseFeedForward):
        yield from _mlp(
            spec.hidden_size,
            part.intermediate_size,
            make,
            kind="dense_mlp",
            prefix="mlp",
            gated=part.gated,
        )
        return
    yield from _experts(spec.hidden_size, part, make)


def _mlp(
    hidden: int,
    width: int,
    make: LayerWeights,
    *,
    kind: WeightKind,
    prefix: str,
    gated: bool,
) -> Iterator[WeightTensor]:
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    for name in names:
        yield make.linear(f"{prefix}.{name}", kind, hidden * width, fused=f"{prefix}.gate_up_proj")
    yield make.linear(f"{prefix}.down_proj", kind, hidden * width)


def _experts(hidden: int, part: MixtureOfExperts, make: LayerWeights) -> Iterator[WeightTensor]:
    inner = part.latent_size or hidden
    width = part.expert_intermediate_size
    names = ("gate_proj", "up_proj", "down_proj") if part.gated else ("up_proj", "down_proj")
    # Where a dense MLP stands beside them (Gemma 4), the experts are named apart from it.
    home = "experts" if part.parallel_dense_intermediate_size else "mlp.experts"
    yield make.plain("mlp.gate", "router", hidden * part.num_experts, sharding="replicated")
    for name in names:
        yield make.linear(
            f"{home}.0.{name}",
            "routed_experts",
            part.num_experts * inner * width,
            sharding="experts",
            units=part.num_experts,
            fused=f"{home}.w2" if name == "down_proj" else f"{home}.w13",
            expert_shape=(inner, width),
        )
    if part.latent_size:
        for name in ("fc1_latent_proj", "fc2_latent_proj"):
            yield make.linear(
                f"mlp.{name}", "shared_experts", hidden * inner, sharding="replicated"
            )
    if part.shared_intermediate_size:
        yield from _mlp(
            hidden,
            part.shared_intermediate_size,
            make,
            kind="shared_experts",
            prefix="mlp.shared_experts",
            gated=part.gated,
        )
    if part.parallel_dense_intermediate_size:
        yield from _mlp(
            hidden,
            part.parallel_dense_intermediate_size,
            make,
            kind="dense_mlp",
            prefix="mlp",
            gated=part.gated,
        )
