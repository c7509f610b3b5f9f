"""Reads stacks of softmax attention whose layers differ in more than a window."""

from collections.abc import Callable

import msgspec

from service.tuning.models.readers.attention import (
    grouped_query,
    latent,
    layer_kinds,
    num_heads,
    num_kv_heads,
)
from service.tuning.models.readers.family import Family, Layer
from service.tuning.models.readers.feed_forward import (
    dense_feed_forward,
    feed_forwards,
    mixture_of_experts,
)
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.readers.hybrid import hidden_size
from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    Mixer,
    MixtureOfExperts,
)


def common(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """The common layout: one attention per window kind, dense or routed feed-forward."""
    count = fields.layers()
    width = hidden_size(fields)
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    if "kv_lora_rank" in fields:
        mixer = latent(fields)
        return tuple((mixer, part) for part in parts)
    make = grouped_query(fields, family=family, hidden_size=width)
    kinds = layer_kinds(fields, family=family, count=count)
    mixers = {kind: make(kind) for kind in dict.fromkeys(kinds)}
    return tuple((mixers[kind], part) for kind, part in zip(kinds, parts, strict=True))


def gemma4(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Gemma 4: full layers with wider heads, experts beside the MLP, shared KV at the end."""
    count = fields.layers()
    width = hidden_size(fields)
    kinds = layer_kinds(fields, family=family, count=count)
    make = grouped_query(fields, family=family, hidden_size=width)
    shared_from = count - fields.integer_or(0, "num_kv_shared_layers", minimum=0, maximum=count)
    dense = dense_feed_forward(fields, family=family, hidden_size=width)
    part: FeedForward = dense
    if fields.flag("enable_moe_block"):
        part = msgspec.structs.replace(
            mixture_of_experts(fields, family=family),
            parallel_dense_intermediate_size=dense.intermediate_size,
        )
    wide = fields.flag("use_double_wide_mlp")
    layers: list[Layer] = []
    for index, kind in enumerate(kinds):
        mixer = _gemma4_attention(fields, make, kind)
        is_shared = index >= shared_from
        layers.append(
            (
                msgspec.structs.replace(mixer, shares_kv=is_shared, projects_kv=not is_shared),
                _doubled(part) if wide and is_shared else part,
            )
        )
    return tuple(layers)


def _gemma4_attention(
    fields: ConfigFields, make: Callable[[str], GroupedQueryAttention], kind: str
) -> GroupedQueryAttention:
    mixer = make(kind)
    if kind != "full":
        return mixer
    dim = fields.integer_or(mixer.head_dim, "global_head_dim", maximum=2**16)
    k_eq_v = fields.flag("attention_k_eq_v")
    kv_heads = mixer.num_kv_heads
    if k_eq_v:
        kv_heads = fields.integer_or(kv_heads, "num_global_key_value_heads", maximum=2**16)
    if mixer.num_heads % kv_heads:
        fields.reject("num_global_key_value_heads", f"must divide {mixer.num_heads} heads")
    return msgspec.structs.replace(
        mixer, head_dim=dim, v_head_dim=dim, num_kv_heads=kv_heads, k_eq_v=k_eq_v
    )


def _doubled(part: FeedForward) -> FeedForward:
    if isinstance(part, MixtureOfExperts):
        return part
    return msgspec.structs.replace(part, intermediate_size=2 * part.intermediate_size)


def gemma3n(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Gemma 3n: a width per layer, and the last layers reuse earlier KV."""
    count = fields.layers()
    width = hidden_size(fields)
    widths = (
        fields.integers("intermediate_size", minimum=1)
        if isinstance(fields.raw("intermediate_size"), list)
        else (fields.integer("intermediate_size"),) * count
    )
    if widths is None or len(widths) < count:
        fields.reject("intermediate_size", f"must name all {count} layers")
    kinds = layer_kinds(fields, family=family, count=count)
    make = grouped_query(fields, family=family, hidden_size=width)
    shared_from = count - fields.integer_or(0, "num_kv_shared_layers", minimum=0, maximum=count)
    return tuple(
        (
            msgspec.structs.replace(make(kinds[i]), shares_kv=i >= shared_from),
            DenseFeedForward(intermediate_size=widths[i]),
        )
        for i in range(count)
    )


def mimo_v2(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """MiMo V2: sliding layers with head counts and widths of their own."""
    count = fields.layers()
    width = hidden_size(fields)
    marks = fields.integers("hybrid_layer_pattern")
    if marks is None or len(marks) < count:
        fields.reject_missing("hybrid_layer_pattern")
    full = grouped_query(fields, family=family, hidden_size=width)("full")
    dim = fields.integer_or(full.head_dim, "swa_head_dim", maximum=2**16)
    sliding = msgspec.structs.replace(
        full,
        num_heads=fields.integer_or(full.num_heads, "swa_num_attention_heads", maximum=2**16),
        num_kv_heads=fields.integer_or(full.num_kv_heads, "swa_num_key_value_heads", maximum=2**16),
        head_dim=dim,
        v_head_dim=fields.integer_or(full.v_head_dim, "swa_v_head_dim", maximum=2**16),
        window=fields.integer("sliding_window", "sliding_window_size"),
        has_sinks=fields.flag("add_swa_attention_sink_bias"),
    )
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    return tuple((sliding if marks[i] else full, part) for i, part in enumerate(parts))


_MOST_BLOCKS = 1_000


def decilm(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """DeciLM and Nemotron Super: searched blocks with their own KV heads and widths, or none."""
    blocks = fields.sections("block_configs")
    if not blocks:
        fields.reject_missing("block_configs")
    if len(blocks) > _MOST_BLOCKS:
        fields.reject("block_configs", f"must hold at most {_MOST_BLOCKS} blocks")
    width = hidden_size(fields)
    base = GroupedQueryAttention(
        num_heads=num_heads(fields),
        num_kv_heads=num_kv_heads(fields, family=family),
        head_dim=width // num_heads(fields) or 1,
        v_head_dim=width // num_heads(fields) or 1,
    )
    return tuple(
        (_deci_attention(block, base), _deci_feed_forward(block, width)) for block in blocks
    )


def _deci_attention(block: ConfigFields, base: GroupedQueryAttention) -> Mixer | None:
    attention = block.section("attention")
    if attention is None or attention.flag("no_op"):
        return None
    if attention.flag("replace_with_linear"):
        attention.reject_layout("attention replaced by a linear layer")
    group = attention.integer("n_heads_in_group", maximum=base.num_heads)
    return msgspec.structs.replace(base, num_kv_heads=max(1, base.num_heads // group))


def _deci_feed_forward(block: ConfigFields, width: int) -> FeedForward | None:
    part = block.section("ffn")
    if part is None or part.flag("no_op"):
        return None
    if part.flag("replace_with_linear"):
        part.reject_layout("feed-forward replaced by a linear layer")
    multiple = part.number_or(0.0, "ffn_mult", maximum=1000.0)
    if multiple <= 0:
        part.reject_missing("ffn_mult")
    rows = int(2 * multiple * width / 3)
    return DenseFeedForward(intermediate_size=-(-rows // 256) * 256)


def dbrx(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """DBRX: attention and experts in sections of their own."""
    del family
    attention = fields.section("attn_config")
    experts = fields.section("ffn_config")
    if attention is None:
        fields.reject_missing("attn_config")
    if experts is None:
        fields.reject_missing("ffn_config")
    heads = num_heads(fields)
    width = hidden_size(fields)
    dim = max(1, width // heads)
    mixer = GroupedQueryAttention(
        num_heads=heads,
        num_kv_heads=attention.integer("kv_n_heads", maximum=heads),
        head_dim=dim,
        v_head_dim=dim,
    )
    part = MixtureOfExperts(
        num_experts=experts.integer("moe_num_experts", maximum=2**14),
        experts_per_token=experts.integer("moe_top_k", maximum=2**14),
        expert_intermediate_size=experts.integer("ffn_hidden_size"),
    )
    return ((mixer, part),) * fields.layers()
