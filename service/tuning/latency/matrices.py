"""The matrix products of a step on one GPU: bytes read, parameters used, by part and format."""

from collections import defaultdict
from functools import lru_cache
from typing import Literal

import msgspec

from service.tuning.models.inventory import WeightKind, WeightTensor, weights
from service.tuning.models.spec import MixtureOfExperts, ModelSpec

Part = Literal["attention", "mlp", "experts", "head"]

_PARTS: dict[WeightKind, Part] = {
    "attention": "attention",
    "mla_absorbed": "attention",
    "indexer": "attention",
    "linear_attention": "attention",
    "state_space": "attention",
    "router": "mlp",
    "dense_mlp": "mlp",
    "shared_experts": "mlp",
    "routed_experts": "experts",
    "head": "head",
}
"""Embeddings are looked up row by row, norms are small, the vision tower runs apart."""
_PREFILL_ONLY = "kv_b_proj"
"""Prompts expand the latent with it, decoding uses its absorbed copy: one of the two per step."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """All matrices of one part in one number format, on one GPU of one stage."""

    part: Part
    scheme: str
    bytes: float
    """Read in a step that touches every expert."""
    active_parameters: float
    """Multiplied by each token (or each sampled row, for the head)."""


class Matrices(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of the mean stage; the head counts with its share."""

    operators: tuple[Operator, ...]


@lru_cache(maxsize=1024)
def rank_matrices(
    spec: ModelSpec,
    *,
    tensor_parallel_size: int,
    pipeline_parallel_size: int,
    expert_data_parallel_size: int,
) -> Matrices:
    """Return what one GPU reads and multiplies per step.

    Layers are spread evenly over pipeline stages. Experts are split over all ranks that share
    them, whether by whole experts or by width: the bytes and the operations are the same.
    """
    bytes_by: dict[tuple[Part, str], float] = defaultdict(float)
    active_by: dict[tuple[Part, str], float] = defaultdict(float)
    share = _active_share(spec)
    for tensor in weights(spec):
        part = _PARTS.get(tensor.kind)
        if part is None or tensor.name.endswith(_PREFILL_ONLY):
            continue
        split = _split(
            tensor, tensor_parallel_size, tensor_parallel_size * expert_data_parallel_size
        )
        size = tensor.parameters / split / pipeline_parallel_size
        key = part, scheme_of(tensor)
        bytes_by[key] += size * tensor.bytes_per_parameter
        active_by[key] += size * (share if part == "experts" else 1.0)
    return Matrices(
        operators=tuple(
            Operator(
                part=part,
                scheme=scheme,
                bytes=bytes_by[part, scheme],
                active_parameters=active_by[part, scheme],
            )
            for part, scheme in sorted(active_by)
        )
    )


def scheme_of(tensor: WeightTensor) -> str:
    """Return the number format of a product: `16bit`, or scheme of weights and activations."""
    scheme = tensor.scheme
    if scheme in {"", "bfloat16", "float16", "float32"}:
        return "16bit"
    if scheme in {"nvfp4", "fp8"} and tensor.activation_bits is None:
        return "int4" if scheme == "nvfp4" else "int8_w8a16"
    return scheme


def _split(tensor: WeightTensor, tensor_ranks: int, expert_ranks: int) -> float:
    match tensor.sharding:
        case "replicated":
            return 1.0
        case "kv_heads":
            return float(min(tensor_ranks, max(tensor.units, 1)))
        case "experts":
            return float(expert_ranks)
        case "tensor" if tensor.kind == "routed_experts":
            return float(expert_ranks)
        case _:
            return float(tensor_ranks)


def _active_share(spec: ModelSpec) -> float:
    """Return the share of the routed experts that one token passes."""
    parts = (group.feed_forward for group in spec.layers)
    return next(
        (p.experts_per_token / p.num_experts for p in parts if isinstance(p, MixtureOfExperts)), 1.0
    )
