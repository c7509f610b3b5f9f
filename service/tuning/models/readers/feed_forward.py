"""Reads the feed-forward parts of a config: dense, or routed to experts, layer by layer."""

from service.tuning.models.readers.family import Family
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import DenseFeedForward, FeedForward, MixtureOfExperts

_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_top_k",
    "moe_topk",
    "moe_k",
)
_SHARED_COUNTS = (
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
)
_SHARED_WIDTHS = ("shared_expert_intermediate_size", "shared_intermediate_size")
_MOST_EXPERTS = 2**14
_SPARSE = frozenset({"sparse", "moe"})


def num_experts(fields: ConfigFields) -> int:
    """Return the routed experts of a layer; 0 when the model has none."""
    return fields.same_integer_or(0, *_EXPERT_COUNTS, minimum=0, maximum=_MOST_EXPERTS)


def feed_forwards(
    fields: ConfigFields, *, family: Family, count: int, hidden_size: int
) -> tuple[FeedForward, ...]:
    """Return the feed-forward part of each layer."""
    if num_experts(fields) == 0:
        dense = dense_feed_forward(fields, family=family, hidden_size=hidden_size)
        return (dense,) * count
    sparse = sparse_layers(fields, count=count)
    moe = mixture_of_experts(fields, family=family)
    if all(sparse):
        return (moe,) * count
    dense = dense_feed_forward(fields, family=family, hidden_size=hidden_size)
    return tuple(moe if is_sparse else dense for is_sparse in sparse)


def dense_feed_forward(
    fields: ConfigFields, *, family: Family, hidden_size: int
) -> DenseFeedForward:
    """Return the plain MLP of the model."""
    keys = (family.dense_width, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    width = fields.maybe_integer(*keys) if family.dense_width else None
    if width is None and family.intermediate is not None:
        width = family.intermediate(fields, hidden_size)
    if width is None:
        fields.reject_missing(family.dense_width)
    return DenseFeedForward(intermediate_size=width, gated=family.gated)


def mixture_of_experts(fields: ConfigFields, *, family: Family) -> MixtureOfExperts:
    """Return the routed and shared experts of a sparse layer."""
    experts = num_experts(fields)
    per_token = fields.same_integer_or(0, *_EXPERTS_PER_TOKEN, maximum=_MOST_EXPERTS)
    if not experts:
        fields.reject_missing(*_EXPERT_COUNTS)
    if not per_token:
        fields.reject_missing(*_EXPERTS_PER_TOKEN)
    if per_token > experts:
        fields.reject("num_experts_per_tok", f"must not exceed {experts} experts, got {per_token}")
    width = fields.same_integer_or(0, family.expert_width, "moe_intermediate_size")
    if not width:
        fields.reject_missing(family.expert_width)
    return MixtureOfExperts(
        num_experts=experts,
        experts_per_token=per_token,
        expert_intermediate_size=width,
        shared_intermediate_size=_shared_width(fields, family=family, expert_width=width),
        gated=family.gated,
        latent_size=fields.integer_or(0, "moe_latent_size", minimum=0),
    )


def _shared_width(fields: ConfigFields, *, family: Family, expert_width: int) -> int:
    if family.shared_experts == "one":
        return expert_width
    if family.shared_experts == "required":
        return fields.integer(*_SHARED_WIDTHS, minimum=0)
    each = fields.integer_or(expert_width, "moe_shared_expert_intermediate_size")
    shared = fields.same_integer_or(-1, *_SHARED_COUNTS, minimum=0, maximum=_MOST_EXPERTS)
    if shared >= 0:
        return shared * each
    return fields.integer_or(0, *_SHARED_WIDTHS, minimum=0)


def sparse_layers(fields: ConfigFields, *, count: int) -> tuple[bool, ...]:
    """Return for each layer whether it routes to experts."""
    named = fields.per_layer("mlp_layer_types", count=count)
    if named is not None:
        return tuple(name in _SPARSE for name in named)
    for reader in (_by_list, _by_period, _by_interval):
        found = reader(fields, count)
        if found is not None:
            return found
    return _by_first_dense(fields, count)


def _by_list(fields: ConfigFields, count: int) -> tuple[bool, ...] | None:
    """A 0/1 list per layer (MiMo V2) or the indices of the sparse ones (Llama 4)."""
    if isinstance(fields.raw("moe_layer_freq"), list | tuple):
        marks = fields.integers("moe_layer_freq") or ()
        if len(marks) < count:
            fields.reject("moe_layer_freq", f"must name all {count} layers, names {len(marks)}")
        return tuple(mark > 0 for mark in marks[:count])
    chosen = fields.integers("moe_layers")
    if chosen is not None:
        return tuple(i in chosen for i in range(count))
    return None


def _by_period(fields: ConfigFields, count: int) -> tuple[bool, ...] | None:
    """Every n-th layer (Jamba, Llama 4, Qwen with its list of dense layers)."""
    period = fields.maybe_integer("expert_layer_period")
    if period is not None:
        offset = fields.integer_or(0, "expert_layer_offset", minimum=0)
        return tuple(i % period == offset for i in range(count))
    step = fields.maybe_integer("interleave_moe_layer_step", minimum=0)
    if step is not None:
        return tuple(step > 0 and (i + 1) % step == 0 for i in range(count))
    if "decoder_sparse_step" in fields or "mlp_only_layers" in fields:
        sparse_step = fields.integer_or(1, "decoder_sparse_step")
        dense = fields.integers("mlp_only_layers") or ()
        return tuple(i not in dense and (i + 1) % sparse_step == 0 for i in range(count))
    return None


def _by_interval(fields: ConfigFields, count: int) -> tuple[bool, ...] | None:
    """A range of layers (ERNIE 4.5)."""
    start = fields.maybe_integer("moe_layer_start_index", minimum=0)
    if start is None:
        return None
    end = fields.integer_or(count - 1, "moe_layer_end_index", minimum=0)
    interval = fields.integer_or(1, "moe_layer_interval")
    return tuple(start <= i <= end and (i + 1) % interval == 0 for i in range(count))


def _by_first_dense(fields: ConfigFields, count: int) -> tuple[bool, ...]:
    """All layers after the first few (DeepSeek)."""
    first = fields.integer_or(0, "first_k_dense_replace", minimum=0)
    frequency = fields.integer_or(1, "moe_layer_freq")
    return tuple(i >= first and i % frequency == 0 for i in range(count))
