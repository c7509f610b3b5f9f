"""Whether a GPU and a release support a number format: weights and activations."""

from typing import Literal

import msgspec

from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu
from service.tuning.models.spec import ModelSpec, Quantization
from service.tuning.rules.package_data import entry_for, read_rules_data

Capability = tuple[int, int]
_AMPERE: Capability = (8, 0)
_NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Families that overflow in float16: vllm config/model.py, refused since about 0.9.1."""


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something runs, on what, and why."""

    ok: bool
    backend: str | None
    """The kernel or attention backend that does it, where that is known."""
    reason: str
    is_certain: bool = True
    """False where it hangs on an optional package or was not verified."""


def parse_capability(text: str) -> Capability:
    """Return a compute capability written as in the data files, such as 8.9."""
    major, minor = text.split(".")
    return int(major), int(minor)


def format_capability(capability: Capability) -> str:
    """Return a compute capability as people write it."""
    return f"{capability[0]}.{capability[1]}"


def minimum_capability(
    method: str, *, quantization: Quantization | None, version: EngineVersion
) -> Capability | None:
    """Return the lowest compute capability that loads `method`; None where that is unknown.

    Source: data/quantization.json, from get_min_capability of the releases.
    """
    data = read_rules_data("quantization")
    least = entry_for(data["min_capability"].get(method, []), version).get("cc")
    schemes = data["scheme_min_capability"].get(method, {})
    scheme = quantization.scheme if quantization is not None else ""
    of_scheme = entry_for(schemes.get(scheme, []), version).get("cc")
    known = [parse_capability(text) for text in (least, of_scheme) if text is not None]
    return max(known, default=None)


def quantization_support(
    spec: ModelSpec, gpu: Gpu, version: EngineVersion, *, method: str | None = None
) -> Support:
    """Return whether the checkpoint's (or an explicit) weight format loads on this GPU.

    A part without the arithmetic may still load it weight-only; the reason says so.
    """
    quantization = spec.quantization
    name = method or (quantization.method if quantization is not None else None)
    if name is None:
        return Support(ok=True, backend=None, reason="The weights are not quantised.")
    capability = gpu.compute_capability
    if capability is None:
        reason = "Only NVIDIA parts have a table of kernels here."
        return Support(ok=True, backend=None, reason=reason, is_certain=False)
    least = minimum_capability(name, quantization=quantization, version=version)
    if least is not None and capability < least:
        return Support(
            ok=False,
            backend=None,
            reason=f"{name} needs compute capability {format_capability(least)}; {gpu.name} has"
            f" {format_capability(capability)}.",
        )
    scheme = quantization.scheme if quantization is not None else name
    if is_weight_only(scheme, capability):
        reason = f"{gpu.name} has no {scheme} arithmetic: weights are unpacked to 16 bit."
        return Support(ok=True, backend="Marlin, weight-only", reason=reason)
    reason = f"{name} loads from compute capability {format_capability(least or (0, 0))}."
    return Support(ok=True, backend=None, reason=reason, is_certain=least is not None)


def is_weight_only(scheme: str, capability: Capability) -> bool:
    """Whether the part stores this format but computes in 16 bit."""
    native = read_rules_data("quantization")["native_capability"].get(scheme)
    return native is not None and capability < parse_capability(native)


def recommended_dtype(spec: ModelSpec, gpu: Gpu) -> Literal["bfloat16", "float16", "float32"]:
    """Return the activation type to run in: the checkpoint's, where the GPU computes it.

    bfloat16 needs compute capability 8.0 (vllm 0.33.0 platforms/cuda.py); float32 checkpoints
    run in 16 bit.
    """
    capability = gpu.compute_capability
    if capability is None or capability >= _AMPERE:
        return "bfloat16" if spec.dtype == "float32" else spec.dtype
    return "float32" if spec.model_type in _NO_FLOAT16 else "float16"


def refuses_float16(spec: ModelSpec) -> bool:
    """Whether vLLM refuses float16 for this family because it overflows."""
    return spec.model_type in _NO_FLOAT16
