"""The storage formats of quantised weights, and the bytes they take."""

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import Quantization, QuantizationScheme, WeightFormat

MOST_BITS = 32
FULL_BITS = 16
BYTE_BITS = 8
NIBBLE_BITS = 4
MX_GROUP = 32
_NVFP4_GROUP = 16
_MOST_GROUP = 2**20
_SCHEME_BITS: dict[str, float] = {
    "fp8": 8.0,
    "fp8_block": 8.0,
    "int8_w8a8": 8.0,
    "int8_w8a16": 8.0,
    "nvfp4": 4.0,
    "mxfp4": 4.0,
    "mxfp8": 8.0,
    "nf4": 4.0,
}
_SCHEME_GROUPS = {"nvfp4": _NVFP4_GROUP, "mxfp4": MX_GROUP, "mxfp8": MX_GROUP}
_BITS_OF_UNKNOWN = 4.5
"""A common GGUF size (Q4_K_M stores 4.5 to 5 bits), used with low confidence only."""


def of_formats(
    method: str, formats: tuple[WeightFormat, ...], *, kv_cache_bits: int | None = None
) -> Quantization:
    """Return a quantisation whose head line is its first format, or `mixed`."""
    first = formats[0]
    is_mixed = len({item.scheme for item in formats}) > 1
    return Quantization(
        method=method,
        scheme="mixed" if is_mixed else first.scheme,
        bits=first.bits,
        group_size=first.group_size,
        has_zero_points=first.has_zero_points,
        activation_bits=first.activation_bits,
        quantizes_head=any("lm_head" in t for item in formats for t in item.targets),
        kv_cache_bits=kv_cache_bits,
        formats=formats,
    )


def unknown_layout(section: ConfigFields, method: str) -> Quantization:
    """Return a quantisation whose layout the config does not give (GGUF and others)."""
    bits = float(section.integer_or(0, "bits", minimum=0, maximum=MOST_BITS) or _BITS_OF_UNKNOWN)
    made = WeightFormat(scheme="unknown", bits=bits)
    return msgspec.structs.replace(of_formats(method, (made,)), layout_known=False)


def fixed_format(scheme: QuantizationScheme, *, activation_bits: int | None) -> WeightFormat:
    """Return a format whose bits and group size follow from its name."""
    return WeightFormat(
        scheme=scheme,
        bits=_SCHEME_BITS[scheme],
        group_size=_SCHEME_GROUPS.get(scheme),
        activation_bits=activation_bits,
    )


def integer_format(bits: int, *, group_size: int | None, has_zero_points: bool) -> WeightFormat:
    """Return a format of packed integers with 16-bit activations."""
    return WeightFormat(
        scheme="int4" if bits <= NIBBLE_BITS else "int8_w8a16",
        bits=float(bits),
        group_size=group_size,
        has_zero_points=has_zero_points,
    )


def targeted(made: WeightFormat, targets: tuple[str, ...]) -> WeightFormat:
    """Return the format for these modules; a class of modules stands for all of them."""
    named = () if "Linear" in targets or "RoutedExperts" in targets else targets
    return msgspec.structs.replace(made, targets=named)


def read_group_size(section: ConfigFields, *keys: str) -> int | None:
    """Return the weights that share a scale; -1 (one per channel) is None."""
    size = section.maybe_integer(*keys, minimum=-1, maximum=_MOST_GROUP)
    if size == 0:
        section.reject(keys[0], "must be -1 or positive, got 0")
    return None if size in {None, -1} else size


def bytes_per_weight(stored: WeightFormat) -> float:
    """Return the bytes of one weight with its share of scales and zero points.

    Scales are 16 bit for integer formats, 8 bit for NVFP4 (groups of 16) and MX (groups of 32),
    32 bit for block FP8 and double-quantised for nf4.
    """
    if stored.scheme in _BYTES:
        return _BYTES[stored.scheme]
    packed = stored.bits / 8
    if stored.group_size is None:
        return packed
    zero_points = packed / stored.group_size if stored.has_zero_points else 0.0
    return packed + _SCALE_BYTES / stored.group_size + zero_points


_SCALE_BYTES = 2
_BYTES: dict[str, float] = {
    "fp8": 1.0,
    "int8_w8a8": 1.0,
    "fp8_block": 1.0 + 4 / (128 * 128),
    "nvfp4": 0.5 + 1 / _NVFP4_GROUP,
    "mxfp4": 0.5 + 1 / MX_GROUP,
    "mxfp8": 1.0 + 1 / MX_GROUP,
    "nf4": 0.5 + 1 / 64,
}
