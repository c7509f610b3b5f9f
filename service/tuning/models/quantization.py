"""How a checkpoint's `quantization_config` says its linear weights are stored."""

import fnmatch
import functools
import re
from collections.abc import Callable, Iterator

import msgspec

from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.spec import Quantization, QuantizationScheme, WeightFormat

_IGNORE_KEYS = (
    "ignore",
    "modules_to_not_convert",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)
_MOST_BITS = 32
_FULL_BITS = 16
_BYTE_BITS = 8
_NIBBLE_BITS = 4
_NVFP4_GROUP = 16
_MX_GROUP = 32
_MOST_GROUP = 2**20


def read_quantization(top: ConfigFields, text: ConfigFields) -> Quantization | None:
    """Return how the checkpoint is quantised, None when it is not; the outer section wins."""
    for fields in (top, text):
        for key in ("quantization_config", "compression_config"):
            section = fields.section(key)
            if section is not None:
                return _read_section(section)
    return None


def _read_section(section: ConfigFields) -> Quantization:
    method = _method(section)
    reader = _READERS.get(method)
    quantization = _unknown(section, method) if reader is None else reader(section, method)
    return msgspec.structs.replace(quantization, ignore=(*_ignored(section), *quantization.ignore))


def _method(section: ConfigFields) -> str:
    named = section.text("quant_method")
    if named is None:
        legacy = section.section("quantization")
        if section.text("quant_algo") or (legacy and legacy.text("quant_algo")):
            return "modelopt"
        section.reject_missing("quant_method")
    return named.lower().replace("_", "-")


def _ignored(section: ConfigFields) -> tuple[str, ...]:
    legacy = section.section("quantization")
    found: list[str] = []
    for fields in (section, legacy):
        if fields is not None:
            for key in _IGNORE_KEYS:
                found.extend(fields.strings(key) or ())
    return tuple(found)


def _of_formats(
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


def _read_fp8(section: ConfigFields, method: str) -> Quantization:
    block = section.integers("weight_block_size", minimum=1)
    if block is None:
        return _of_formats(method, (_format("fp8", activation_bits=8),))
    if len(block) != len(("rows", "columns")):
        section.reject("weight_block_size", "must hold two numbers")
    quantization = _of_formats(method, (_format("fp8_block", activation_bits=8),))
    return msgspec.structs.replace(quantization, block_shape=(block[0], block[1]))


def _read_awq(section: ConfigFields, method: str) -> Quantization:
    bits = section.integer_or(_NIBBLE_BITS, "bits", "w_bit", maximum=_MOST_BITS)
    return _of_formats(
        method,
        (
            _integers(
                bits,
                group_size=_group_size(section, "group_size", "q_group_size"),
                has_zero_points=section.flag("zero_point", default=True),
            ),
        ),
    )


def _read_gptq(section: ConfigFields, method: str) -> Quantization:
    bits = section.integer_or(_NIBBLE_BITS, "bits", maximum=_MOST_BITS)
    group_size = _group_size(section, "group_size")
    base = _integers(bits, group_size=group_size, has_zero_points=True)
    skipped, others = _gptq_overrides(section, group_size=group_size)
    head = section.flag("lm_head")
    targets = ("lm_head",) if head else ()
    formats = (*others, base, *(() if not head else (_targeted(base, targets),)))
    return msgspec.structs.replace(
        _of_formats(method, formats), ignore=skipped, quantizes_head=head
    )


def _gptq_overrides(
    section: ConfigFields, *, group_size: int | None
) -> tuple[tuple[str, ...], tuple[WeightFormat, ...]]:
    """Return modules that GPTQ's `dynamic` leaves out and those it stores otherwise."""
    dynamic = section.section("dynamic")
    if dynamic is None:
        return (), ()
    skipped: list[str] = []
    others: list[WeightFormat] = []
    for key, _ in dynamic.items():
        pattern = "re:" + key.removeprefix("-:").removeprefix("+:")
        if key.startswith("-:"):
            skipped.append(pattern)
            continue
        override = dynamic.section(key)
        bits = override.maybe_integer("bits", maximum=_MOST_BITS) if override else None
        if bits is not None:
            made = _integers(bits, group_size=group_size, has_zero_points=True)
            others.append(_targeted(made, (pattern,)))
    return tuple(skipped), tuple(others)


def _read_auto_round(section: ConfigFields, method: str) -> Quantization:
    bits = section.integer_or(_NIBBLE_BITS, "bits", maximum=_MOST_BITS)
    group_size = _group_size(section, "group_size")
    base = _integers(bits, group_size=group_size, has_zero_points=True)
    skipped, others = _auto_round_extras(section, group_size=group_size)
    states_layout = any(
        key in section for key in ("extra_config", "block_name_to_quantize", "to_quant_block_names")
    )
    return msgspec.structs.replace(
        _of_formats(method, (*others, base)),
        ignore=skipped,
        layout_known=states_layout,
    )


def _auto_round_extras(
    section: ConfigFields, *, group_size: int | None
) -> tuple[tuple[str, ...], tuple[WeightFormat, ...]]:
    extra = section.section("extra_config")
    if extra is None:
        return (), ()
    skipped: list[str] = []
    others: list[WeightFormat] = []
    for name, _ in extra.items():
        module = extra.section(name)
        bits = module.maybe_integer("bits", maximum=_MOST_BITS) if module else None
        if bits is None:
            continue
        pattern = f"re:{name}" if _looks_regular(name) else name
        if bits >= _FULL_BITS:
            skipped.append(pattern)
        else:
            made = _integers(bits, group_size=group_size, has_zero_points=True)
            others.append(_targeted(made, (pattern,)))
    return tuple(skipped), tuple(others)


def _looks_regular(name: str) -> bool:
    return any(mark in name for mark in (".*", "\\", "[", "("))


def _read_compressed_tensors(section: ConfigFields, method: str) -> Quantization:
    groups = section.section("config_groups")
    kv_bits = _kv_cache_bits(section)
    if groups is None or not groups.items():
        return msgspec.structs.replace(_unknown(section, method), kv_cache_bits=kv_bits)
    formats = _group_formats(groups, section.text("format") or "")
    if not formats:
        return msgspec.structs.replace(_unknown(section, method), kv_cache_bits=kv_bits)
    return _of_formats(method, formats, kv_cache_bits=kv_bits)


def _group_formats(groups: ConfigFields, outer_format: str) -> tuple[WeightFormat, ...]:
    formats: list[WeightFormat] = []
    for name, _ in groups.items():
        group = groups.section(name)
        weights = group.section("weights") if group else None
        if group is None or weights is None:
            continue
        named = group.text("format") or outer_format
        made = _compressed_format(weights, group.section("input_activations"), named)
        formats.append(_targeted(made, group.strings("targets") or ()))
    return tuple(formats)


def _compressed_format(
    weights: ConfigFields, activations: ConfigFields | None, named: str
) -> WeightFormat:
    bits = weights.integer_or(_BYTE_BITS, "num_bits", maximum=_MOST_BITS)
    group_size = _group_size(weights, "group_size")
    activation_bits = (
        None if activations is None else activations.maybe_integer("num_bits", maximum=_MOST_BITS)
    )
    if (weights.text("type") or "int") == "float":
        return _float_format(
            bits,
            group_size=group_size,
            activation_bits=activation_bits,
            is_block=weights.text("strategy") == "block",
            is_mx="mxfp" in named or weights.text("scale_dtype") == "torch.uint8",
        )
    if bits == _BYTE_BITS and activation_bits is not None:
        return _format("int8_w8a8", activation_bits=activation_bits)
    return msgspec.structs.replace(
        _integers(
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
    if bits == _BYTE_BITS:
        scheme: QuantizationScheme = "fp8_block" if is_block else "fp8"
        if is_mx or group_size == _MX_GROUP:
            scheme = "mxfp8"
        return _format(scheme, activation_bits=activation_bits)
    if bits == _NIBBLE_BITS:
        is_mx = is_mx or group_size == _MX_GROUP
        return _format("mxfp4" if is_mx else "nvfp4", activation_bits=activation_bits)
    return WeightFormat(scheme="unknown", bits=float(bits), activation_bits=activation_bits)


_ALGORITHMS: dict[str, WeightFormat] = {}


def _read_modelopt(section: ConfigFields, method: str) -> Quantization:
    legacy = section.section("quantization")
    source = legacy if legacy is not None and "quant_algo" in legacy else section
    algorithm = (source.text("quant_algo") or "").upper()
    kv_bits = _kv_cache_bits(section) or _kv_cache_bits(source)
    groups = section.section("config_groups")
    layers = source.section("quantized_layers")
    if algorithm == "MIXED_PRECISION":
        formats = _modelopt_layers(layers) if layers is not None else ()
        if not formats and groups is not None:
            formats = _group_formats(groups, "")
        if not formats:
            return msgspec.structs.replace(_unknown(section, method), kv_cache_bits=kv_bits)
        return _of_formats(method, formats, kv_cache_bits=kv_bits)
    made = _algorithm(algorithm, source)
    if made is None and groups is not None:
        return _of_formats(method, _group_formats(groups, ""), kv_cache_bits=kv_bits)
    if made is None:
        return msgspec.structs.replace(_unknown(section, method), kv_cache_bits=kv_bits)
    return _of_formats(method, (made,), kv_cache_bits=kv_bits)


def _algorithm(name: str, source: ConfigFields) -> WeightFormat | None:
    """Return what ModelOpt's `quant_algo` stores."""
    if name.startswith(("NVFP4", "W4A8_NVFP4", "W4A16_NVFP4")):
        activation = {"W4A8": 8, "W4A1": None}.get(name[:4], 4)
        return _format("nvfp4", activation_bits=activation)
    if name in {"FP8_PB_WO", "FP8_PB_REAL"}:
        return _format("fp8_block", activation_bits=8)
    if name.startswith("FP8"):
        return _format("fp8", activation_bits=8)
    if name.startswith("MXFP8"):
        return _format("mxfp8", activation_bits=8)
    if name.startswith(("MXFP4", "W4A8_MXFP4")):
        return _format("mxfp4", activation_bits=8 if name.startswith("W4A8") else None)
    if name.startswith(("W4A16", "W4A8", "INT4")):
        group_size = _group_size(source, "group_size")
        return _integers(_NIBBLE_BITS, group_size=group_size, has_zero_points=False)
    if name.startswith(("W8A8", "INT8")):
        return _format("int8_w8a8", activation_bits=8)
    return None


def _modelopt_layers(layers: ConfigFields) -> tuple[WeightFormat, ...]:
    """Return one format per algorithm, with the modules that use it."""
    modules: dict[str, list[str]] = {}
    for name, _ in layers.items():
        layer = layers.section(name)
        algorithm = (layer.text("quant_algo") or "").upper() if layer else ""
        modules.setdefault(algorithm, []).append(name)
    formats: list[WeightFormat] = []
    for algorithm, names in modules.items():
        made = _algorithm(algorithm, layers)
        if made is not None:
            formats.append(_targeted(made, tuple(names)))
    return tuple(formats)


def _read_mxfp4(section: ConfigFields, method: str) -> Quantization:
    del section
    quantization = _of_formats(method, (_format("mxfp4", activation_bits=None),))
    return msgspec.structs.replace(quantization, experts_only=True)


def _read_bitsandbytes(section: ConfigFields, method: str) -> Quantization:
    bits = section.maybe_integer("bits", maximum=_MOST_BITS)
    if section.flag("load_in_8bit", "_load_in_8bit") or bits == _BYTE_BITS:
        return _of_formats(method, (_format("int8_w8a16", activation_bits=None),))
    quantization = _of_formats(method, (_format("nf4", activation_bits=None),))
    states = bits is not None or section.flag("load_in_4bit", "_load_in_4bit")
    return msgspec.structs.replace(quantization, layout_known=states)


def _read_quark(section: ConfigFields, method: str) -> Quantization:
    """AMD Quark: a global weight type, exceptions by module."""
    default = section.section("global_quant_config")
    made = None if default is None else _quark_format(default)
    if made is None:
        return _unknown(section, method)
    others: list[WeightFormat] = []
    per_layer = section.section("layer_quant_config")
    for name, _ in per_layer.items() if per_layer else ():
        inner = per_layer.section(name) if per_layer else None
        exception = _quark_format(inner) if inner else None
        if exception is not None:
            others.append(_targeted(exception, (name,)))
    return _of_formats(method, (*others, made))


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
        return _format("fp8", activation_bits=8)
    if dtype == "fp4":
        return _format("mxfp4", activation_bits=4 if activations else None)
    if dtype == "int8":
        return _format("int8_w8a8", activation_bits=8)
    if dtype in {"int4", "uint4"}:
        return _integers(
            _NIBBLE_BITS, group_size=_group_size(weights, "group_size"), has_zero_points=True
        )
    return None


_BITS_OF_UNKNOWN = 4.5
"""A common GGUF size (Q4_K_M stores 4.5 to 5 bits), used with low confidence only."""


def _unknown(section: ConfigFields, method: str) -> Quantization:
    bits = float(section.integer_or(0, "bits", minimum=0, maximum=_MOST_BITS) or _BITS_OF_UNKNOWN)
    made = WeightFormat(scheme="unknown", bits=bits)
    return msgspec.structs.replace(_of_formats(method, (made,)), layout_known=False)


_READERS: dict[str, Callable[[ConfigFields, str], Quantization]] = {
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fp8,
    "ptpc-fp8": _read_fp8,
    "deepseek-v4-fp8": _read_fp8,
    "awq": _read_awq,
    "awq-marlin": _read_awq,
    "auto-awq": _read_awq,
    "gptq": _read_gptq,
    "gptq-marlin": _read_gptq,
    "auto-gptq": _read_gptq,
    "moe-wna16": _read_gptq,
    "auto-round": _read_auto_round,
    "auto-round:auto-gptq": _read_auto_round,
    "intel/auto-round": _read_auto_round,
    "inc": _read_auto_round,
    "compressed-tensors": _read_compressed_tensors,
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
    "modelopt-mixed": _read_modelopt,
    "modelopt-mxfp8": _read_modelopt,
    "nvfp4": _read_modelopt,
    "mxfp4": _read_mxfp4,
    "gpt-oss-mxfp4": _read_mxfp4,
    "bitsandbytes": _read_bitsandbytes,
    "quark": _read_quark,
}

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
_SCHEME_GROUPS = {"nvfp4": _NVFP4_GROUP, "mxfp4": _MX_GROUP, "mxfp8": _MX_GROUP}


def _format(scheme: QuantizationScheme, *, activation_bits: int | None) -> WeightFormat:
    return WeightFormat(
        scheme=scheme,
        bits=_SCHEME_BITS[scheme],
        group_size=_SCHEME_GROUPS.get(scheme),
        activation_bits=activation_bits,
    )


def _integers(bits: int, *, group_size: int | None, has_zero_points: bool) -> WeightFormat:
    return WeightFormat(
        scheme="int4" if bits <= _NIBBLE_BITS else "int8_w8a16",
        bits=float(bits),
        group_size=group_size,
        has_zero_points=has_zero_points,
    )


def _targeted(made: WeightFormat, targets: tuple[str, ...]) -> WeightFormat:
    named = () if "Linear" in targets or "RoutedExperts" in targets else targets
    return msgspec.structs.replace(made, targets=named)


def _group_size(section: ConfigFields, *keys: str) -> int | None:
    """Return the weights that share a scale; -1 (one per channel) is None."""
    size = section.maybe_integer(*keys, minimum=-1, maximum=_MOST_GROUP)
    if size == 0:
        section.reject(keys[0], "must be -1 or positive, got 0")
    return None if size in {None, -1} else size


def _kv_cache_bits(section: ConfigFields) -> int | None:
    """Return 8 when the checkpoint brings scales for an 8-bit KV cache."""
    scheme = section.raw("kv_cache_scheme")
    if isinstance(scheme, dict):
        fields = section.section("kv_cache_scheme")
        return None if fields is None else fields.maybe_integer("num_bits", maximum=_MOST_BITS)
    algorithm = section.raw("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm.upper().startswith(("FP8", "NVFP4")):
        return _BYTE_BITS if algorithm.upper().startswith("FP8") else _NIBBLE_BITS
    return None


def bytes_per_weight(stored: WeightFormat) -> float:
    """Return the bytes of one weight with its share of scales and zero points.

    Scales are 16 bit for integer formats, 8 bit for NVFP4 (groups of 16) and MX (groups of 32),
    32 bit for block FP8 and double-quantised for nf4.
    """
    match stored.scheme:
        case "fp8" | "int8_w8a8":
            return 1.0
        case "fp8_block":
            return 1.0 + 4 / (128 * 128)
        case "nvfp4":
            return 0.5 + 1 / _NVFP4_GROUP
        case "mxfp4":
            return 0.5 + 1 / _MX_GROUP
        case "mxfp8":
            return 1.0 + 1 / _MX_GROUP
        case "nf4":
            return 0.5 + 1 / 64
        case _:
            packed = stored.bits / 8
            if stored.group_size is None:
                return packed
            zero_points = packed / stored.group_size if stored.has_zero_points else 0.0
            return packed + 2 / stored.group_size + zero_points


def weight_format(
    quantization: Quantization | None, name: str, *, is_expert: bool = False
) -> WeightFormat | None:
    """Return how the named linear layer is stored, None when it stays in the model's dtype."""
    if quantization is None or (quantization.experts_only and not is_expert):
        return None
    matcher = _matcher(quantization)
    if matcher.ignores(name):
        return None
    is_head = name == "lm_head"
    for stored, targets in matcher.formats:
        if is_head if targets is None else not targets(name):
            continue
        return stored
    return None


_Test = Callable[[str], bool]


class _Matcher(msgspec.Struct, frozen=True):
    ignores: _Test
    formats: tuple[tuple[WeightFormat, _Test | None], ...]


@functools.lru_cache(maxsize=256)
def _matcher(quantization: Quantization) -> _Matcher:
    return _Matcher(
        ignores=_any_of(quantization.ignore),
        formats=tuple(
            (stored, _any_of(stored.targets) if stored.targets else None)
            for stored in quantization.formats
        ),
    )


def _any_of(patterns: tuple[str, ...]) -> _Test:
    """Return a test whether any pattern names a module: plain names, globs, or `re:`."""
    plain = {_bare(p) for p in patterns if not p.startswith("re:") and "*" not in p}
    globs = [fnmatch.translate(p) for p in patterns if not p.startswith("re:") and "*" in p]
    regular = [p.removeprefix("re:") for p in patterns if p.startswith("re:")]
    compiled = _compiled([*globs, *regular])

    def matches(name: str) -> bool:
        variants = _variants(_bare(name))
        if plain and any(part in plain for variant in variants for part in _parts(variant)):
            return True
        if compiled is None:
            return False
        return any(compiled.match(stem + variant) for variant in variants for stem in ("", *_STEMS))

    return matches


def _compiled(patterns: list[str]) -> re.Pattern[str] | None:
    """Return one pattern of those that compile; a checkpoint's broken one matches nothing."""
    sound = [pattern for pattern in patterns if _compiles(pattern)]
    if not sound:
        return None
    return re.compile("|".join(f"(?:{pattern})" for pattern in sound))


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


_STEMS = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "backbone.",
    "model.",
)


def _bare(name: str) -> str:
    """Return a module's name without what wraps the language model."""
    for stem in _STEMS:
        if name.startswith(stem):
            return name[len(stem) :]
    return name


def _parts(name: str) -> Iterator[str]:
    """Yield every run of whole components of a dotted name."""
    words = name.split(".")
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield ".".join(words[start:end])


def _variants(bare: str) -> tuple[str, ...]:
    """Return the names that checkpoints give this module below the stem."""
    return (bare, *(bare.replace(ours, theirs) for ours, theirs in _RENAMED if ours in bare))


_RENAMED = ((".mlp.", ".block_sparse_moe."), (".mlp.", ".mixer."), (".self_attn.", ".mixer."))
