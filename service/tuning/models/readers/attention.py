"""Reads the sequence mixers of a config: which layer attends how."""

from collections.abc import Callable

import msgspec

from service.tuning.models.readers.family import Family
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import GroupedQueryAttention, LatentAttention

LayerKind = str
"""full, sliding, chunked, linear, or the name a family gives."""

_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "mamba",
}


def num_heads(fields: ConfigFields) -> int:
    """Return the query heads."""
    return fields.integer("num_attention_heads", "n_head", "num_heads", "n_heads", maximum=2**16)


def num_kv_heads(fields: ConfigFields, *, family: Family) -> int:
    """Return the key/value heads; absent means one per query head."""
    heads = num_heads(fields)
    if family.kv_heads is not None:
        return family.kv_heads(fields, heads)
    kv_heads = fields.integer_or(
        heads,
        "num_key_value_heads",
        "num_attention_groups",
        "multi_query_group_num",
        "n_head_kv",
        "num_kv_heads",
        maximum=2**16,
    )
    if heads % kv_heads:
        fields.reject("num_key_value_heads", f"must divide {heads} heads, got {kv_heads}")
    return kv_heads


def head_dim(fields: ConfigFields, *, hidden_size: int) -> int:
    """Return the width of a head, by default the hidden size over the heads."""
    explicit = fields.maybe_integer(
        "head_dim", "attention_head_dim", "kv_channels", "hidden_size_per_head", maximum=2**16
    )
    if explicit is not None:
        return explicit
    heads = num_heads(fields)
    if hidden_size % heads:
        fields.reject_missing("head_dim")
    return hidden_size // heads


def layer_kinds(fields: ConfigFields, *, family: Family, count: int) -> tuple[LayerKind, ...]:
    """Return for each layer how it attends; a window that is null makes its layers full."""
    kinds = _stated_kinds(fields, family=family, count=count)
    off = {kind for kind, key in _WIDTHS.items() if fields.is_switched_off(key)}
    return tuple("full" if kind in off else kind for kind in kinds)


_WIDTHS = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}


def _stated_kinds(fields: ConfigFields, *, family: Family, count: int) -> tuple[LayerKind, ...]:
    """Return the kinds that `layer_types` or the family's own keys state."""
    named = fields.per_layer("layer_types", count=count)
    if named is not None:
        return tuple(_kind_of(fields, name) for name in named)
    pattern = fields.raw("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        return tuple(_letter_kind(fields, pattern[i % len(pattern)]) for i in range(count))
    if family.full_every is None:
        if not _slides(fields, family=family):
            return ("full",) * count
        # Qwen lets only the layers from `max_window_layers` on slide.
        first = 0 if family.window_used else fields.integer_or(0, "max_window_layers", minimum=0)
        return tuple("sliding" if i >= first else "full" for i in range(count))
    every = fields.integer_or(
        family.full_every,
        "sliding_window_pattern",
        "_sliding_window_pattern",
        "full_attention_interval",
        "no_rope_layer_interval",
        maximum=10_000,
    )
    other = family.other_kind
    return tuple("full" if (i + 1) % every == 0 else other for i in range(count))


def _kind_of(fields: ConfigFields, name: str) -> LayerKind:
    if name not in _KINDS:
        fields.reject_layout(f"layer type {name!r}")
    return _KINDS[name]


def _letter_kind(fields: ConfigFields, letter: str) -> LayerKind:
    if letter not in "LG":
        fields.reject("sliding_window_pattern", f"must consist of L and G, got {letter!r}")
    return "sliding" if letter == "L" else "full"


def _slides(fields: ConfigFields, *, family: Family) -> bool:
    """Whether layers slide at all; Qwen keeps an unused width beside `use_sliding_window`."""
    used = fields.flag("use_sliding_window", default=family.window_used)
    return used and bool(fields.integer_or(0, "sliding_window", "attention_window_size", minimum=0))


def grouped_query(
    fields: ConfigFields, *, family: Family, hidden_size: int
) -> Callable[[LayerKind], GroupedQueryAttention]:
    """Return a maker of one layer's attention by its kind."""
    dim = head_dim(fields, hidden_size=hidden_size)
    base = GroupedQueryAttention(
        num_heads=num_heads(fields),
        num_kv_heads=num_kv_heads(fields, family=family),
        head_dim=dim,
        v_head_dim=fields.integer_or(dim, "v_head_dim", maximum=2**16),
        qkv_bias=fields.flag("attention_bias", "qkv_bias", default=family.qkv_bias),
        output_gate=fields.flag("attn_output_gate", default=family.output_gate),
        has_sinks=family.has_sinks,
        qk_norm=family.qk_norm,
    )

    def make(kind: LayerKind) -> GroupedQueryAttention:
        if kind == "sliding":
            return msgspec.structs.replace(
                base, window=fields.integer("sliding_window", "attention_window_size")
            )
        if kind == "chunked":
            return msgspec.structs.replace(base, chunk=fields.integer("attention_chunk_size"))
        if kind != "full":
            fields.reject_layout(f"{kind} layers")
        return base

    return make


def latent(fields: ConfigFields) -> LatentAttention:
    """Return multi-head latent attention, with its indexer when the config names one."""
    topk = fields.maybe_integer("index_topk")
    return LatentAttention(
        num_heads=num_heads(fields),
        q_lora_rank=fields.maybe_integer("q_lora_rank"),
        kv_lora_rank=fields.integer("kv_lora_rank"),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim"),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim"),
        v_head_dim=fields.integer("v_head_dim"),
        index_topk=topk,
        index_num_heads=0 if topk is None else fields.integer("index_n_heads"),
        index_head_dim=0 if topk is None else fields.integer("index_head_dim"),
    )
