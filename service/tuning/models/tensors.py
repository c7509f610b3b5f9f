"""A tensor of the weight inventory, and how one of a layer is made."""

from typing import Literal

import msgspec

from service.tuning.models.formats import bytes_per_weight
from service.tuning.models.module_names import weight_format
from service.tuning.models.spec import (
    LayerGroup,
    ModelSpec,
)

WeightKind = Literal[
    "embedding",
    "head",
    "positions",
    "rotary_cache",
    "norm",
    "attention",
    "mla_absorbed",
    "indexer",
    "linear_attention",
    "state_space",
    "dense_mlp",
    "shared_experts",
    "routed_experts",
    "router",
    "vision",
    "draft",
]
Sharding = Literal["tensor", "kv_heads", "experts", "vocabulary", "replicated"]
Place = Literal["layer", "first", "last", "every"]

MODEL_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class WeightTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of one projection of one layer, or of the model."""

    name: str
    kind: WeightKind
    parameters: int
    bytes_per_parameter: float
    sharding: Sharding
    place: Place = "layer"
    layer: int | None = None
    units: int = 1
    """Heads or experts that are dealt out whole (`kv_heads`, `experts`)."""
    scheme: str = ""
    """How it is stored: the model's dtype or a quantisation scheme."""
    activation_bits: int | None = None
    """Bits of the activations in its GEMM; None is the model's dtype."""
    allocation: str = ""
    """The fused parameter it lives in on the GPU."""
    scale_share: float = 0.0
    """Part of the bytes that are scales and zero points, kept in a tensor of their own."""
    expert_shape: tuple[int, int] | None = None
    """Hidden and expert width where the kernel pads them (MXFP4)."""

    @property
    def bytes_(self) -> float:
        """Bytes of the whole tensor, unsharded."""
        return self.parameters * self.bytes_per_parameter


class LayerWeights:
    """Names the weights of one layer and finds how each is stored."""

    def __init__(self, spec: ModelSpec, *, layer: int | None, prefix: str, place: Place) -> None:
        self._spec = spec
        self._layer = layer
        self._prefix = prefix
        self._place = place
        self._dtype_bytes = MODEL_DTYPE_BYTES[spec.dtype]

    def _full(self, name: str) -> str:
        return f"{self._prefix}.{name}" if self._prefix else name

    def linear(
        self,
        name: str,
        kind: WeightKind,
        parameters: int,
        *,
        sharding: Sharding = "tensor",
        units: int = 1,
        fused: str = "",
        expert_shape: tuple[int, int] | None = None,
    ) -> WeightTensor:
        """Return the weights of a projection that a quantisation may store otherwise."""
        full = self._full(name)
        stored = weight_format(self._spec.quantization, full, is_expert=kind == "routed_experts")
        if stored is None:
            return self.plain(name, kind, parameters, sharding=sharding, units=units, fused=fused)
        each = bytes_per_weight(stored)
        is_padded = stored.scheme == "mxfp4" and expert_shape is not None
        return WeightTensor(
            name=full,
            kind=kind,
            parameters=parameters,
            bytes_per_parameter=each,
            scale_share=1 - stored.bits / 8 / each,
            sharding=sharding,
            place=self._place,
            layer=self._layer,
            units=units,
            scheme=stored.scheme,
            activation_bits=stored.activation_bits,
            allocation=self._full(fused or name),
            expert_shape=expert_shape if is_padded else None,
        )

    def plain(
        self,
        name: str,
        kind: WeightKind,
        parameters: int,
        *,
        sharding: Sharding = "tensor",
        units: int = 1,
        fused: str = "",
        element_bytes: int | None = None,
    ) -> WeightTensor:
        """Return weights that stay in the model's dtype whatever the quantisation."""
        return WeightTensor(
            name=self._full(name),
            kind=kind,
            parameters=parameters,
            bytes_per_parameter=element_bytes or self._dtype_bytes,
            sharding=sharding,
            place=self._place,
            layer=self._layer,
            units=units,
            scheme=self._spec.dtype,
            allocation=self._full(fused or name),
        )


def layer_groups(spec: ModelSpec) -> tuple[LayerGroup, ...]:
    """Return the make of every layer in the order of the stack."""
    if spec.layer_order:
        return tuple(spec.layers[index] for index in spec.layer_order)
    return tuple(group for group in spec.layers for _ in range(group.count))
