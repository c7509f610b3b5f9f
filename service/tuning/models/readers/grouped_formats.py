"""Reads checkpoints that state a format per group of modules: llm-compressor, ModelOpt, Quark."""

import msgspec

from service.tuning.models.formats import (
    BYTE_BITS,
    MOST_BITS,
    MX_GROUP,
    NIBBLE_BITS,
    fixed_format,
    integer_format,
    of_formats,
    read_group_size,
    targeted,
    unknown_layout,
)
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import Quantization, QuantizationScheme, WeightFormat


def read_compressed_tensors(section: ConfigFields, method: str) -> Quantization:
    """Return what llm-compressor stored: one format per config group."""
    groups = section.section("config_groups")
    kv_bits = kv_cache_bits(section)
    named = section.text("format") or ""
    formats = () if groups is None else group_formats(groups, named)
    if formats:
        return of_formats(method, formats, kv_cache_bits=kv_bits)
    usual = next((made for prefix, made in _USUAL if named.startswith(prefix)), None)
    guessed = unknown_layout(section, method) if usual is None else of_formats(method, (usual,))
    return msgspec.structs.replace(guessed, kv_cache_bits=kv_bits, layout_known=False)


_USUAL: tuple[tuple[str, WeightFormat], ...] = (
    ("float-quantized", fixed_format("fp8", activation_bits=8)),
    ("int-quantized", fixed_format("int8_w8a8", activation_bits=8)),
    ("nvfp4-pack-quantized", fixed_format("nvfp4", activation_bits=4)),
    ("mxfp4-pack-quantized", fixed_format("mxfp4", activation_bits=None)),
    ("pack-quantized", integer_format(4, group_size=128, has_zero_points=False)),
)
"""What the name of a format usually means, for excerpts that leave the groups out."""


def group_formats(groups: ConfigFields, outer_format: str) -> tuple[WeightFormat, ...]:
    """Return the format of each config group, those that name modules before the general one."""
    formats: list[WeightFormat] = []
    for name in groups:
        group = groups.section(name)
        weights = group.section("weights") if group else None
        if group is None or weights is None:
            continue
        named = group.text("format") or outer_format
        made = _compressed_format(weights, group.section("input_activations"), named)
        formats.append(targeted(made, group.strings("targets") or ()))
    return tuple(sorted(formats, key=lambda stored: not stored.targets))


def _compressed_format(
    weights: ConfigFields, activations: ConfigFields | None, named: str
) -> WeightFormat:
    bits = weights.integer_or(BYTE_BITS, "num_bits", maximum=MOST_BITS)
    group_size = read_group_size(weights, "group_size")
    activation_bits = (
        None if activations is None else activations.maybe_integer("num_bits", maximum=MOST_BITS)
    )
    if (weights.text("type") or "int") == "float":
        return _float_format(
            bits,
            group_size=group_size,
            activation_bits=activation_bits,
            is_block=weights.text("strategy") == "block",
            is_mx="mxfp" in named or weights.text("scale_dtype") == "torch.uint8",
        )
    if bits == BYTE_BITS and activation_bits is not None:
        return fixed_format("int8_w8a8", activation_bits=activation_bits)
    return msgspec.structs.replace(
        integer_format(
            bits, group_size=group_size, has_zero_points=not weights.flag("symmetric", default=True)
        ),
        activation_bits=activation_bits,
    )


def _float_format(
    bits: int,
    *,
    group_size: int | None,
    activation_bits: int | None,
    is_block: bool,
    is_mx: bool,
) -> WeightFormat:
    if bits == BYTE_BITS:
        scheme: QuantizationScheme = "fp8_block" if is_block else "fp8"
        if is_mx or group_size == MX_GROUP:
            scheme = "mxfp8"
        return fixed_format(scheme, activation_bits=activation_bits)
    if bits == NIBBLE_BITS:
        is_mx = is_mx or group_size == MX_GROUP
        return fixed_format("mxfp4" if is_mx else "nvfp4", activation_bits=activation_bits)
    return WeightFormat(scheme="unknown", bits=float(bits), activation_bits=activation_bits)


def read_modelopt(section: ConfigFields, method: str) -> Quantization:
    """Return what NVIDIA ModelOpt stored: one algorithm, or several by module."""
    legacy = section.section("quantization")
    source = legacy if legacy is not None and "quant_algo" in legacy else section
    algorithm = (source.text("quant_algo") or "").upper()
    kv_bits = kv_cache_bits(section) or kv_cache_bits(source)
    groups = section.section("config_groups")
    layers = source.section("quantized_layers")
    if algorithm == "MIXED_PRECISION":
        formats = _modelopt_layers(layers) if layers is not None else ()
        if not formats and groups is not None:
            formats = group_formats(groups, "")
        if not formats:
            return msgspec.structs.replace(unknown_layout(section, method), kv_cache_bits=kv_bits)
        return of_formats(method, formats, kv_cache_bits=kv_bits)
    made = _algorithm(algorithm, source)
    formats = group_formats(groups, "") if made is None and groups is not None else ()
    if made is not None:
        formats = (made,)
    if not formats:
        return msgspec.structs.replace(unknown_layout(section, method), kv_cache_bits=kv_bits)
    return of_formats(method, formats, kv_cache_bits=kv_bits)


def _algorithm(name: str, source: ConfigFields) -> WeightFormat | None:
    """Return what ModelOpt's `quant_algo` stores, None when its name is not known."""
    for prefix, scheme, activation_bits in _ALGORITHMS:
        if name.startswith(prefix):
            return fixed_format(scheme, activation_bits=activation_bits)
    if name.startswith(("W4A16", "W4A8", "INT4")):
        group_size = read_group_size(source, "group_size")
        return integer_format(NIBBLE_BITS, group_size=group_size, has_zero_points=False)
    return None


_ALGORITHMS: tuple[tuple[str, QuantizationScheme, int | None], ...] = (
    ("NVFP4", "nvfp4", 4),
    ("W4A8_NVFP4", "nvfp4", 8),
    ("W4A16_NVFP4", "nvfp4", None),
    ("FP8_PB", "fp8_block", 8),
    ("FP8", "fp8", 8),
    ("MXFP8", "mxfp8", 8),
    ("MXFP4", "mxfp4", None),
    ("W4A8_MXFP4", "mxfp4", 8),
    ("W8A8", "int8_w8a8", 8),
    ("INT8", "int8_w8a8", 8),
)
"""The first prefix that fits a name wins."""


def _modelopt_layers(layers: ConfigFields) -> tuple[WeightFormat, ...]:
    """Return one format per algorithm, with the modules that use it."""
    modules: dict[str, list[str]] = {}
    for name in layers:
        layer = layers.section(name)
        algorithm = (layer.text("quant_algo") or "").upper() if layer else ""
        modules.setdefault(algorithm, []).append(name)
    formats: list[WeightFormat] = []
    for algorithm, names in modules.items():
        made = _algorithm(algorithm, layers)
        if made is not None:
            formats.append(targeted(made, tuple(names)))
    return tuple(formats)


def read_quark(section: ConfigFields, method: str) -> Quantization:
    """AMD Quark: a global weight type, exceptions by module."""
    default = section.section("global_quant_config")
    made = None if default is None else _quark_format(default)
    if made is None:
        return unknown_layout(section, method)
    others: list[WeightFormat] = []
    per_layer = section.section("layer_quant_config")
    for name in per_layer or ():
        inner = per_layer.section(name) if per_layer else None
        exception = _quark_format(inner) if inner else None
        if exception is not None:
            others.append(targeted(exception, (name,)))
    return of_formats(method, (*others, made))


def _quark_format(fields: ConfigFields) -> WeightFormat | None:
    raw = fields.raw("weight")
    if isinstance(raw, list):
        weights = (fields.sections("weight") or (None,))[0]
    else:
        weights = fields.section("weight")
    if weights is None:
        return None
    activations = (
        None if isinstance(fields.raw("input_tensors"), list) else fields.section("input_tensors")
    )
    dtype = weights.text("dtype") or ""
    if dtype.startswith("fp8"):
        return fixed_format("fp8", activation_bits=8)
    if dtype == "fp4":
        return fixed_format("mxfp4", activation_bits=4 if activations else None)
    if dtype == "int8":
        return fixed_format("int8_w8a8", activation_bits=8)
    if dtype in {"int4", "uint4"}:
        return integer_format(
            NIBBLE_BITS, group_size=read_group_size(weights, "group_size"), has_zero_points=True
        )
    return None


def kv_cache_bits(section: ConfigFields) -> int | None:
    """Return 8 when the checkpoint brings scales for an 8-bit KV cache."""
    scheme = section.raw("kv_cache_scheme")
    if isinstance(scheme, dict):
        fields = section.section("kv_cache_scheme")
        return None if fields is None else fields.maybe_integer("num_bits", maximum=MOST_BITS)
    algorithm = section.raw("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm.upper().startswith(("FP8", "NVFP4")):
        return BYTE_BITS if algorithm.upper().startswith("FP8") else NIBBLE_BITS
    return None
