"""The inner widths of layers that ranks share: whole, published and quantised ones."""

from collections.abc import Iterator

import msgspec

from service.tuning.models.spec import (
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureOfExperts,
    ModelSpec,
    Quantization,
)

_PADDED_WIDTHS = {("Qwen2ForCausalLM", 29_568): 29_696}
"""MLP widths that the publisher pads before quantising: Qwen's 4-bit and 8-bit 72B checkpoints."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """How the layers are cut: what counts for the width that one rank holds."""

    tensor_parallel_size: int
    expert_ranks: int
    """Ranks that share one expert's width; 1 with expert parallelism."""


class Width(msgspec.Struct, frozen=True, kw_only=True):
    """The inner width of a feed-forward part and the ranks that share it."""

    name: str
    size: int
    ranks: int


def widths(spec: ModelSpec, *, split: Split) -> Iterator[Width]:
    """Yield the inner widths of all feed-forward parts; one that a part lacks has size 0."""
    ranks = split.tensor_parallel_size
    for group in spec.layers:
        part = group.feed_forward
        if isinstance(part, DenseFeedForward):
            yield Width(name="MLP", size=part.intermediate_size, ranks=ranks)
        elif isinstance(part, MixtureOfExperts):
            yield Width(name="expert", size=part.expert_intermediate_size, ranks=split.expert_ranks)
            yield Width(name="shared expert", size=part.shared_intermediate_size, ranks=ranks)
            yield Width(name="MLP", size=part.parallel_dense_intermediate_size, ranks=ranks)


def published_width(spec: ModelSpec, width: Width) -> int:
    """Return the width that the publisher's own quantised checkpoint has."""
    if width.name != "MLP":
        return width.size
    return _PADDED_WIDTHS.get((spec.architecture, width.size), width.size)


def quantized_widths(
    spec: ModelSpec, quantization: Quantization, *, split: Split
) -> Iterator[Width]:
    """Yield the input widths of the row-split layers that the checkpoint quantises."""
    for width in widths(spec, split=split):
        is_expert = width.name == "expert"
        if quantization.experts_only and not is_expert:
            continue
        if width.size and not _is_ignored(width.name, quantization.ignore):
            yield width
    if not quantization.experts_only and not _is_ignored("attention", quantization.ignore):
        yield from _attention_outputs(spec, ranks=split.tensor_parallel_size)


def _attention_outputs(spec: ModelSpec, *, ranks: int) -> Iterator[Width]:
    for group in spec.layers:
        mixer = group.mixer
        if isinstance(mixer, GroupedQueryAttention):
            size = mixer.num_heads * mixer.v_head_dim
            yield Width(name="attention output", size=size, ranks=ranks)


_MARKS = {
    "MLP": ("mlp.down", "mlp.up", "mlp.gate_", "mlp.*", "mlp$", "down_proj", "feed_forward"),
    "expert": (".experts", "experts."),
    "shared expert": ("shared_expert",),
    "attention": ("attn", "o_proj", "attention"),
}


def _is_ignored(name: str, ignore: tuple[str, ...]) -> bool:
    """Whether any pattern names such parts; when in doubt they count as not quantised."""
    marks = _MARKS[name]
    return any(mark in f"{pattern}$" for pattern in ignore for mark in marks)
