"""The one list of a model's weights that memory and latency both read."""

import functools
import math
from collections.abc import Iterator

import msgspec

from service.tuning.errors import InvalidRequest
from service.tuning.models.allocator import allocated_bytes
from service.tuning.models.ends import end_tensors
from service.tuning.models.layer_tensors import layer_tensors
from service.tuning.models.spec import MixtureOfExperts, ModelSpec
from service.tuning.models.tensors import (
    MODEL_DTYPE_BYTES,
    LayerWeights,
    WeightKind,
    WeightTensor,
    layer_groups,
)

__all__ = [
    "ParallelLayout",
    "RankWeight",
    "WeightKind",
    "WeightTensor",
    "draft_weights",
    "layer_groups",
    "parameter_count",
    "rank_bytes",
    "rank_draft_bytes",
    "rank_parameters",
    "rank_weight_bytes",
    "rank_weights",
    "stage_layers",
    "stage_tensors",
    "weights",
]

_MXFP4_HIDDEN_PADDING = 256
_MXFP4_WIDTH_PADDING = 128
"""Padding of MXFP4 experts per rank (fused_moe/oracle/mxfp4.py, 0.33.0; Marlin and TRT-LLM)."""


class ParallelLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks share a model."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False


class RankWeight(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of one kind and storage that one rank holds."""

    kind: WeightKind
    scheme: str
    activation_bits: int | None
    parameters: float
    bytes_: float


def stage_layers(spec: ModelSpec, pipeline_parallel_size: int) -> tuple[tuple[int, ...], ...]:
    """Return the layer indices of each pipeline stage as vLLM splits them.

    What does not divide goes one each to the stages before the last, starting with the last but
    one (distributed/utils.py, get_pp_indices, 0.33.0).
    """
    count = spec.num_layers
    stages = pipeline_parallel_size
    if stages > count:
        raise InvalidRequest(
            f"pipeline_parallel_size {stages} exceeds the {count} layers of {spec.id}",
            pointer="/engine/config/pipeline_parallel_size",
        )
    sizes = [count // stages] * stages
    for offset in range(count % stages):
        sizes[stages - 2 - offset] += 1
    starts = [sum(sizes[:index]) for index in range(stages)]
    return tuple(
        tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)
    )


@functools.lru_cache(maxsize=128)
def weights(spec: ModelSpec) -> tuple[WeightTensor, ...]:
    """Return every tensor that vLLM keeps for the model, without drafting layers."""
    found = (*end_tensors(spec), *_stack(spec))
    return _matching_stated_size(spec, found)


def _stack(spec: ModelSpec) -> Iterator[WeightTensor]:
    for layer, group in enumerate(layer_groups(spec)):
        make = LayerWeights(spec, layer=layer, prefix=f"model.layers.{layer}", place="layer")
        yield from layer_tensors(spec, group, make)


def _matching_stated_size(
    spec: ModelSpec, found: tuple[WeightTensor, ...]
) -> tuple[WeightTensor, ...]:
    """Spread a stated checkpoint size over quantised weights whose layout is not known."""
    quantization = spec.quantization
    if quantization is None or quantization.layout_known or spec.weights_bytes is None:
        return found
    quantised = sum(t.parameters for t in found if t.scheme not in MODEL_DTYPE_BYTES)
    if quantised == 0:
        return found
    whole = sum(t.bytes_ for t in found if t.scheme in MODEL_DTYPE_BYTES and _is_stored(spec, t))
    each = (spec.weights_bytes - whole) / quantised
    if not _SMALLEST_STORED_BYTES <= each <= _LARGEST_STORED_BYTES:
        return found
    return tuple(
        tensor
        if tensor.scheme in MODEL_DTYPE_BYTES
        else msgspec.structs.replace(tensor, bytes_per_parameter=each)
        for tensor in found
    )


_SMALLEST_STORED_BYTES = 0.2
_LARGEST_STORED_BYTES = 2.0


def _is_stored(spec: ModelSpec, tensor: WeightTensor) -> bool:
    """Whether a checkpoint's files hold this tensor (a tied head and caches they do not)."""
    if tensor.kind in {"rotary_cache", "mla_absorbed"}:
        return False
    return tensor.kind != "head" or not spec.tie_word_embeddings


@functools.lru_cache(maxsize=128)
def draft_weights(spec: ModelSpec) -> tuple[WeightTensor, ...]:
    """Return the multi-token-prediction layers of the checkpoint, for `method: mtp`.

    Each joins two hidden states in a projection; embedding and head are the model's own.
    """
    group = spec.mtp_layer
    if group is None:
        return ()
    found: list[WeightTensor] = []
    for index in range(group.count):
        prefix = spec.mtp_prefix or f"model.layers.{spec.num_layers + index}"
        make = LayerWeights(spec, layer=None, prefix=prefix, place="last")
        joined = 2 * spec.hidden_size * spec.hidden_size
        found.append(make.plain("eh_proj", "draft", joined, sharding="replicated"))
        found.extend(layer_tensors(spec, group, make))
    return tuple(found)


def parameter_count(spec: ModelSpec) -> tuple[int, int]:
    """Return the parameters of the model and those that one token passes through.

    The embedding counts once when it is tied; caches and absorbed copies are not parameters.
    """
    stored = [tensor for tensor in weights(spec) if _is_stored(spec, tensor)]
    total = sum(tensor.parameters for tensor in stored)
    idle = sum(
        int(t.parameters * (1 - _active_share(spec, t)))
        for t in stored
        if t.kind == "routed_experts"
    )
    return total, total - idle


def _active_share(spec: ModelSpec, tensor: WeightTensor) -> float:
    """Return the share of a layer's routed experts that one token passes through."""
    if tensor.layer is None:
        return 1.0
    part = layer_groups(spec)[tensor.layer].feed_forward
    if not isinstance(part, MixtureOfExperts):
        return 1.0
    return part.experts_per_token / part.num_experts


def rank_parameters(tensor: WeightTensor, layout: ParallelLayout) -> float:
    """Return the parameters of a tensor that the fullest rank of its stage holds."""
    tensor_parallel = layout.tensor_parallel_size
    match tensor.sharding:
        case "replicated":
            return float(tensor.parameters)
        case "tensor" | "vocabulary":
            return tensor.parameters / tensor_parallel
        case "kv_heads":
            local = max(1, -(-tensor.units // tensor_parallel))
            return tensor.parameters * local / tensor.units
        case "experts":
            ranks = tensor_parallel * layout.data_parallel_size
            if layout.enable_expert_parallel:
                return tensor.parameters * -(-tensor.units // ranks) / tensor.units
            return tensor.parameters / ranks


def rank_bytes(tensor: WeightTensor, layout: ParallelLayout) -> float:
    """Return the bytes of a tensor on the fullest rank, with the padding of MXFP4 kernels."""
    parameters = rank_parameters(tensor, layout)
    if tensor.expert_shape is not None:
        hidden, width = tensor.expert_shape
        split = (
            1
            if layout.enable_expert_parallel
            else (layout.tensor_parallel_size * layout.data_parallel_size)
        )
        local = width / split
        padded = _up(hidden, _MXFP4_HIDDEN_PADDING) * _up(local, _MXFP4_WIDTH_PADDING)
        parameters *= padded / (hidden * local)
    return parameters * tensor.bytes_per_parameter


def _up(size: float, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def stage_tensors(
    spec: ModelSpec, *, pipeline_parallel_size: int, stage: int
) -> tuple[WeightTensor, ...]:
    """Return the tensors that live on one pipeline stage."""
    own = frozenset(stage_layers(spec, pipeline_parallel_size)[stage])
    is_first, is_last = stage == 0, stage == pipeline_parallel_size - 1
    shares_embedding = spec.tie_word_embeddings and is_first and is_last
    here: list[WeightTensor] = []
    for tensor in weights(spec):
        match tensor.place:
            case "layer":
                lives = tensor.layer in own
            case "first":
                # A tied head reads the embedding's memory: it is listed once, as the head.
                lives = is_first and not (shares_embedding and _is_token_embedding(tensor))
            case "last":
                lives = is_last
            case "every":
                lives = True
        if lives:
            here.append(tensor)
    return tuple(here)


def _is_token_embedding(tensor: WeightTensor) -> bool:
    return tensor.name == "model.embed_tokens"


@functools.lru_cache(maxsize=1024)
def rank_weights(spec: ModelSpec, layout: ParallelLayout, *, stage: int) -> tuple[RankWeight, ...]:
    """Return what the fullest rank of a stage holds, by kind and storage."""
    sums: dict[tuple[WeightKind, str, int | None], tuple[float, float]] = {}
    for tensor in stage_tensors(
        spec, pipeline_parallel_size=layout.pipeline_parallel_size, stage=stage
    ):
        key = (tensor.kind, tensor.scheme, tensor.activation_bits)
        parameters, held = sums.get(key, (0.0, 0.0))
        sums[key] = (
            parameters + rank_parameters(tensor, layout),
            held + rank_bytes(tensor, layout),
        )
    return tuple(
        RankWeight(
            kind=kind, scheme=scheme, activation_bits=bits, parameters=parameters, bytes_=held
        )
        for (kind, scheme, bits), (parameters, held) in sums.items()
    )


@functools.lru_cache(maxsize=1024)
def rank_weight_bytes(
    spec: ModelSpec, layout: ParallelLayout, *, stage: int, expandable_segments: bool = False
) -> float:
    """Return the bytes the weights take on the fullest rank of a stage, as vLLM logs them.

    Larger than the sum of the tensors: the caching allocator rounds every large one up, unless
    its segments expand.
    """
    tensors = stage_tensors(spec, pipeline_parallel_size=layout.pipeline_parallel_size, stage=stage)
    return _allocated_bytes(tensors, layout, expandable_segments=expandable_segments)


@functools.lru_cache(maxsize=1024)
def rank_draft_bytes(spec: ModelSpec, layout: ParallelLayout) -> float:
    """Return the bytes that multi-token-prediction layers add on the last stage."""
    return _allocated_bytes(draft_weights(spec), layout)


def _allocated_bytes(
    tensors: tuple[WeightTensor, ...], layout: ParallelLayout, *, expandable_segments: bool = False
) -> float:
    packed: dict[str, float] = {}
    scales: dict[str, float] = {}
    for tensor in tensors:
        held = rank_bytes(tensor, layout)
        share = tensor.scale_share
        packed[tensor.allocation] = packed.get(tensor.allocation, 0.0) + held * (1 - share)
        scales[tensor.allocation] = scales.get(tensor.allocation, 0.0) + held * share
    sizes = (size for name in packed for size in (packed[name], scales[name]) if size)
    return float(allocated_bytes(sizes, expandable_segments=expandable_segments))
