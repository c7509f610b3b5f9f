"""How a checkpoint's `quantization_config` says its linear weights are stored."""

from collections.abc import Callable

import msgspec

from service.tuning.errors import UnsupportedArchitecture
from service.tuning.models.formats import (
    BYTE_BITS,
    MOST_BITS,
    bytes_per_weight,
    fixed_format,
    of_formats,
    unknown_layout,
)
from service.tuning.models.module_names import check_patterns, is_understood, weight_format
from service.tuning.models.readers.fields import ConfigFields
from service.tuning.models.readers.grouped_formats import (
    read_compressed_tensors,
    read_modelopt,
    read_quark,
)
from service.tuning.models.readers.packed_integers import read_auto_round, read_awq, read_gptq
from service.tuning.models.spec import Quantization

__all__ = ["bytes_per_weight", "read_quantization", "weight_format"]

_Reader = Callable[[ConfigFields, str], Quantization]
_LAYOUT_UNTOLD = frozenset(
    {"gguf", "torchao", "hqq", "fp-quant", "aqlm", "marlin", "qqq", "gptq-marlin-24", "bitblas"}
    | {"gptq-bitblas", "squeezellm", "deepspeedfp", "tpu-int8", "neuron-quant", "ipex", "rtn"}
    | {"experts-int8", "humming", "online", "petit-nvfp4", "mxfp8", "cpu-gptq", "cpu-awq"}
)
"""Methods of vLLM 0.7 to 0.33 (engine/data/values.json) whose config does not give the bytes."""
_IGNORE_KEYS = (
    "ignore",
    "modules_to_not_convert",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
)


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
    reader = _READERS.get(method.replace("_", "-")) or _reader_of_unread(section, method)
    quantization = reader(section, method)
    ignore = (*_ignored(section), *quantization.ignore)
    targets = tuple(target for stored in quantization.formats for target in stored.targets)
    refused = check_patterns((*ignore, *targets))
    if refused:
        section.reject(next((key for key in _IGNORE_KEYS if key in section), "ignore"), refused)
    understood = all(is_understood(pattern) for pattern in (*ignore, *targets))
    return msgspec.structs.replace(
        quantization, ignore=ignore, layout_known=quantization.layout_known and understood
    )


def _reader_of_unread(section: ConfigFields, method: str) -> _Reader:
    """Return the reader of formats that some release loads but whose config tells no layout.

    Raises:
        UnsupportedArchitecture: No release has the method: its bytes would be a mere guess.
    """
    if method.replace("_", "-") in _LAYOUT_UNTOLD:
        return unknown_layout
    raise UnsupportedArchitecture(
        f"quant_method {method!r} is none that a release of vLLM loads",
        missing=(f"the weight format of {method}",),
        pointer=f"{section.pointer}/quant_method",
    )


def _method(section: ConfigFields) -> str:
    """Return vLLM's name of the method; ModelOpt's own file names only an algorithm."""
    named = section.text("quant_method")
    if named is not None:
        return named.lower().replace("compressed_tensors", "compressed-tensors")
    legacy = section.section("quantization")
    algorithm = section.text("quant_algo") or (legacy and legacy.text("quant_algo"))
    if not algorithm:
        section.reject_missing("quant_method")
    return "modelopt"


def _ignored(section: ConfigFields) -> tuple[str, ...]:
    legacy = section.section("quantization")
    found: list[str] = []
    for fields in (section, legacy):
        if fields is not None:
            for key in _IGNORE_KEYS:
                found.extend(fields.strings(key) or ())
    return tuple(found)


def _read_fp8(section: ConfigFields, method: str) -> Quantization:
    block = section.integers("weight_block_size", minimum=1)
    if block is None:
        return of_formats(method, (fixed_format("fp8", activation_bits=8),))
    if len(block) != len(("rows", "columns")):
        section.reject("weight_block_size", "must hold two numbers")
    quantization = of_formats(method, (fixed_format("fp8_block", activation_bits=8),))
    return msgspec.structs.replace(quantization, block_shape=(block[0], block[1]))


def _read_mxfp4(section: ConfigFields, method: str) -> Quantization:
    del section
    quantization = of_formats(method, (fixed_format("mxfp4", activation_bits=None),))
    return msgspec.structs.replace(quantization, experts_only=True)


def _read_bitsandbytes(section: ConfigFields, method: str) -> Quantization:
    bits = section.maybe_integer("bits", maximum=MOST_BITS)
    if section.flag("load_in_8bit", "_load_in_8bit") or bits == BYTE_BITS:
        return of_formats(method, (fixed_format("int8_w8a16", activation_bits=None),))
    quantization = of_formats(method, (fixed_format("nf4", activation_bits=None),))
    states = bits is not None or section.flag("load_in_4bit", "_load_in_4bit")
    return msgspec.structs.replace(quantization, layout_known=states)


_READERS: dict[str, _Reader] = {
    "fp8": _read_fp8,
    "fbgemm-fp8": _read_fp8,
    "ptpc-fp8": _read_fp8,
    "deepseek-v4-fp8": _read_fp8,
    "awq": read_awq,
    "awq-marlin": read_awq,
    "auto-awq": read_awq,
    "gptq": read_gptq,
    "gptq-marlin": read_gptq,
    "auto-gptq": read_gptq,
    "moe-wna16": read_gptq,
    "auto-round": read_auto_round,
    "auto-round:auto-gptq": read_auto_round,
    "intel/auto-round": read_auto_round,
    "inc": read_auto_round,
    "compressed-tensors": read_compressed_tensors,
    "modelopt": read_modelopt,
    "modelopt-fp4": read_modelopt,
    "modelopt-mixed": read_modelopt,
    "modelopt-mxfp8": read_modelopt,
    "nvfp4": read_modelopt,
    "mxfp4": _read_mxfp4,
    "gpt-oss-mxfp4": _read_mxfp4,
    "bitsandbytes": _read_bitsandbytes,
    "quark": read_quark,
}
