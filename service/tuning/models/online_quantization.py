"""A 16-bit checkpoint that vLLM quantises while it loads."""

from collections.abc import Mapping

import msgspec

from service.tuning.models.spec import ModelSpec, Quantization, QuantizationScheme, WeightFormat

_ONLINE: Mapping[str, QuantizationScheme] = {
    "fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_channel": "fp8",
    "ptpc_fp8": "fp8",
    "fp8_per_block": "fp8_block",
    "mxfp8": "mxfp8",
    "int8_per_channel_weight_only": "int8_w8a16",
    "bitsandbytes": "nf4",
}
"""Methods that need no quantised checkpoint (model_executor/layers/quantization, 0.33.0)."""
_BITS: Mapping[QuantizationScheme, float] = {"nf4": 4.0}
_ACTIVATION_BITS: Mapping[QuantizationScheme, int] = {"fp8": 8, "fp8_block": 8, "mxfp8": 8}
_GROUP: Mapping[QuantizationScheme, int] = {"mxfp8": 32}


def as_loaded(spec: ModelSpec, quantization: str | None) -> ModelSpec:
    """Return the model as it lies in memory when `quantization` is set at launch.

    A checkpoint that is quantised already keeps its own layout; the head stays in 16 bit.
    """
    scheme = _ONLINE.get((quantization or "").replace("-", "_"))
    if scheme is None or spec.quantization is not None:
        return spec
    stored = WeightFormat(
        scheme=scheme,
        bits=_BITS.get(scheme, 8.0),
        group_size=_GROUP.get(scheme),
        activation_bits=_ACTIVATION_BITS.get(scheme),
    )
    online = Quantization(
        method=quantization or "",
        scheme=scheme,
        bits=stored.bits,
        group_size=stored.group_size,
        activation_bits=stored.activation_bits,
        formats=(stored,),
    )
    return msgspec.structs.replace(spec, quantization=online, weights_bytes=None)
