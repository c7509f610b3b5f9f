"""Reads stacks that mix attention with recurrent layers, and other unusual stacks."""

import math

from service.tuning.models.readers.attention import (
    grouped_query,
    head_dim,
    latent,
    layer_kinds,
    num_heads,
)
from service.tuning.models.readers.family import Family, Layer
from service.tuning.models.readers.feed_forward import (
    dense_feed_forward,
    feed_forwards,
    mixture_of_experts,
)
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import (
    DenseFeedForward,
    FeedForward,
    LinearAttention,
    Mixer,
    StateSpace,
)


def hidden_size(fields: ConfigFields) -> int:
    """Return the width of the residual stream."""
    return fields.integer("hidden_size", "n_embd", "n_embed", "d_model", maximum=2**20)


def gated_delta_net(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Qwen3-Next, 3.5, 3.6: Gated DeltaNet with full attention every few layers."""
    count = fields.layers()
    width = hidden_size(fields)
    attention = grouped_query(fields, family=family, hidden_size=width)("full")
    linear = LinearAttention(
        kind="gdn",
        num_key_heads=fields.integer("linear_num_key_heads", maximum=2**16),
        num_value_heads=fields.integer("linear_num_value_heads", maximum=2**16),
        key_head_dim=fields.integer("linear_key_head_dim", maximum=2**16),
        value_head_dim=fields.integer("linear_value_head_dim", maximum=2**16),
        conv_kernel=fields.integer_or(4, "linear_conv_kernel_dim", maximum=1024),
    )
    kinds = layer_kinds(fields, family=family, count=count)
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    return tuple(
        (linear if kind == "linear" else attention, part)
        for kind, part in zip(kinds, parts, strict=True)
    )


def kimi_linear(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Kimi Linear: Kimi Delta Attention with latent attention every few layers."""
    count = fields.layers()
    linear_fields = fields.section("linear_attn_config")
    if linear_fields is None:
        fields.reject_missing("linear_attn_config")
    heads = linear_fields.integer("num_heads", maximum=2**16)
    dim = linear_fields.integer("head_dim", maximum=2**16)
    linear = LinearAttention(
        kind="kda",
        num_key_heads=heads,
        num_value_heads=heads,
        key_head_dim=dim,
        value_head_dim=dim,
        conv_kernel=linear_fields.integer_or(4, "short_conv_kernel_size", maximum=1024),
    )
    kda_layers = linear_fields.integers("kda_layers")
    if kda_layers is None:
        linear_fields.reject_missing("kda_layers")
    attention = latent(fields)
    parts = feed_forwards(fields, family=family, count=count, hidden_size=hidden_size(fields))
    return tuple(
        (linear if i + 1 in kda_layers else attention, part) for i, part in enumerate(parts)
    )


def minimax_lightning(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """MiniMax Text 01 and M1: lightning attention, softmax attention every eighth layer."""
    count = fields.layers()
    width = hidden_size(fields)
    marks = fields.integers("attn_type_list")
    if marks is None or len(marks) < count:
        fields.reject_missing("attn_type_list")
    heads = num_heads(fields)
    dim = head_dim(fields, hidden_size=width)
    linear = LinearAttention(
        kind="lightning",
        num_key_heads=heads,
        num_value_heads=heads,
        key_head_dim=dim,
        value_head_dim=dim,
        conv_kernel=1,
    )
    attention = grouped_query(fields, family=family, hidden_size=width)("full")
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    return tuple((attention if marks[i] else linear, part) for i, part in enumerate(parts))


_MOST_BLOCKS = 1_000
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Nemotron-H and Nemotron 3: each layer is a Mamba 2, an attention or a feed-forward layer."""
    width = hidden_size(fields)
    names = _block_names(fields)
    layer_of: dict[str, Layer] = {}
    for name in dict.fromkeys(names):
        layer_of[name] = _nemotron_layer(fields, name, family=family, width=width)
    return tuple(layer_of[name] for name in names)


def _block_names(fields: ConfigFields) -> tuple[str, ...]:
    named = fields.strings("layers_block_type")
    if named is None:
        pattern = fields.text("hybrid_override_pattern")
        if not pattern:
            fields.reject_missing("hybrid_override_pattern")
        named = tuple(_LETTERS.get(letter, letter) for letter in pattern)
    count = fields.maybe_integer("num_hidden_layers", maximum=1_000)
    if len(named) > _MOST_BLOCKS:
        fields.reject_layout(f"more than {_MOST_BLOCKS} layers")
    if count is not None and count != len(named):
        fields.reject("num_hidden_layers", f"is {count}, the pattern names {len(named)} layers")
    if not named:
        fields.reject_missing("layers_block_type")
    return named


def _nemotron_layer(fields: ConfigFields, name: str, *, family: Family, width: int) -> Layer:
    if name == "mamba":
        return mamba2(fields, hidden_size=width), None
    if name == "attention":
        return grouped_query(fields, family=family, hidden_size=width)("full"), None
    if name == "mlp":
        return None, dense_feed_forward(fields, family=family, hidden_size=width)
    if name != "moe":
        fields.reject_layout(f"layer type {name!r}")
    return None, mixture_of_experts(fields, family=family)


def mamba2(fields: ConfigFields, *, hidden_size: int) -> StateSpace:
    """Return a Mamba 2 mixer; the inner size is heads times head width."""
    head = fields.integer("mamba_head_dim", "mamba_d_head", "head_dim", maximum=2**16)
    expand = fields.maybe_integer("mamba_expand", "expand", maximum=1024)
    default_heads = None if expand is None else max(1, expand * hidden_size // head)
    heads = fields.maybe_integer("mamba_num_heads", "mamba_n_heads", "num_heads", maximum=2**20)
    heads = heads or default_heads
    if heads is None:
        fields.reject_missing("mamba_num_heads")
    return StateSpace(
        kind="mamba2",
        inner_size=heads * head,
        num_heads=heads,
        head_dim=head,
        state_size=fields.integer("ssm_state_size", "mamba_d_state", "state_size", maximum=2**16),
        num_groups=fields.integer_or(1, "n_groups", "mamba_n_groups", maximum=2**16),
        conv_kernel=fields.integer_or(4, "conv_kernel", "mamba_d_conv", maximum=1024),
    )


def mamba1(fields: ConfigFields, *, hidden_size: int) -> StateSpace:
    """Return a Mamba 1 mixer."""
    expand = fields.integer_or(2, "mamba_expand", "expand", maximum=1024)
    inner = fields.integer_or(expand * hidden_size, "intermediate_size_mamba", "d_inner")
    rank = fields.raw("mamba_dt_rank") or fields.raw("time_step_rank")
    default_rank = math.ceil(hidden_size / 16)
    return StateSpace(
        kind="mamba1",
        inner_size=inner,
        num_heads=1,
        head_dim=inner,
        state_size=fields.integer_or(16, "mamba_d_state", "state_size", maximum=2**16),
        num_groups=1,
        conv_kernel=fields.integer_or(4, "mamba_d_conv", "conv_kernel", maximum=1024),
        time_step_rank=default_rank
        if rank is None or rank == "auto"
        else fields.integer("mamba_dt_rank", "time_step_rank"),
    )


def jamba(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Jamba: Mamba 1 with attention and experts at fixed periods."""
    count = fields.layers()
    width = hidden_size(fields)
    period = fields.integer("attn_layer_period", maximum=10_000)
    offset = fields.integer_or(0, "attn_layer_offset", minimum=0)
    attention = grouped_query(fields, family=family, hidden_size=width)("full")
    recurrent = mamba1(fields, hidden_size=width)
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    return tuple(
        (attention if i % period == offset else recurrent, part) for i, part in enumerate(parts)
    )


def bamba(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Bamba: Mamba 2 with attention at the listed layers."""
    count = fields.layers()
    width = hidden_size(fields)
    chosen = fields.integers("attn_layer_indices") or ()
    attention = grouped_query(fields, family=family, hidden_size=width)("full")
    recurrent = mamba2(fields, hidden_size=width)
    parts = feed_forwards(fields, family=family, count=count, hidden_size=width)
    return tuple((attention if i in chosen else recurrent, part) for i, part in enumerate(parts))


def granite_hybrid(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Granite 4: Mamba 2 and attention by `layer_types`; without experts a shared MLP stays."""
    count = fields.layers()
    width = hidden_size(fields)
    names = fields.per_layer("layer_types", count=count) or fields.per_layer(
        "layers_block_type", count=count
    )
    if names is None:
        fields.reject_missing("layer_types")
    mixers: dict[str, Mixer] = {}
    if "attention" in names:
        mixers["attention"] = grouped_query(fields, family=family, hidden_size=width)("full")
    if "mamba" in names:
        mixers["mamba"] = mamba2(fields, hidden_size=width)
    unknown = set(names) - set(mixers)
    if unknown:
        fields.reject_layout(f"layer type {min(unknown)!r}")
    part = _granite_part(fields, family=family)
    return tuple((mixers[name], part) for name in names)


def _granite_part(fields: ConfigFields, *, family: Family) -> FeedForward:
    if fields.integer_or(0, "num_local_experts", minimum=0, maximum=2**14):
        return mixture_of_experts(fields, family=family)
    return DenseFeedForward(
        intermediate_size=fields.integer("shared_intermediate_size", "intermediate_size")
    )


def falcon_h1(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Falcon-H1: attention and Mamba 2 side by side, listed here as two layers in a row."""
    count = fields.layers()
    width = hidden_size(fields)
    attention = grouped_query(fields, family=family, hidden_size=width)("full")
    recurrent = mamba2(fields, hidden_size=width)
    dense = dense_feed_forward(fields, family=family, hidden_size=width)
    return ((attention, None), (recurrent, dense)) * count


def pure_mamba2(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Mamba 2 alone."""
    del family
    return ((mamba2(fields, hidden_size=hidden_size(fields)), None),) * fields.layers()


def pure_mamba1(fields: ConfigFields, family: Family) -> tuple[Layer, ...]:
    """Mamba and Falcon Mamba."""
    del family
    return ((mamba1(fields, hidden_size=hidden_size(fields)), None),) * fields.layers()
