"""Whether the KV cache can be kept in a number format on a GPU, and by which backend."""

from service.tuning.engine.facts import choices
from service.tuning.engine.platform import generation, is_cpu
from service.tuning.engine.versions import NEWEST, EngineVersion
from service.tuning.hardware.spec import Gpu
from service.tuning.models.spec import LatentAttention, ModelSpec
from service.tuning.rules.support import Capability, Support

_AMPERE: Capability = (8, 0)
_ADA: Capability = (8, 9)
_HOPPER: Capability = (9, 0)
_BLACKWELL: Capability = (10, 0)


def kv_cache_dtype_support(
    spec: ModelSpec, gpu: Gpu, version: EngineVersion, dtype: str
) -> Support:
    """Return whether the KV cache can be kept as `dtype` there, and by which backend.

    Sources: vLLM 0.33.0 v1/attention/backends and platforms/cuda.py; KV caches of 8 bit on
    Ampere since PR 24577, and start-ups on RTX 3090 with 0.22 and 0.27.
    """
    unknown = unknown_kv_cache_dtype(dtype, version)
    if unknown is not None:
        return _no(unknown)
    if dtype in {"auto", "bfloat16", "float16"}:
        return _sixteen_bit(dtype, gpu)
    if gpu.compute_capability is None:
        return _without_cuda(dtype, gpu)
    if any(isinstance(group.mixer, LatentAttention) for group in spec.layers):
        return _latent(dtype, spec, gpu.compute_capability)
    return _grouped(dtype, gpu, gpu.compute_capability, version)


def unknown_kv_cache_dtype(dtype: str, version: EngineVersion) -> str | None:
    """Return why the release does not list this KV cache type, or None where it does."""
    if dtype == "auto" or dtype in (choices("kv_cache_dtype", version) or ()):
        return None
    newer = " Newer releases do." if dtype in (choices("kv_cache_dtype", NEWEST) or ()) else ""
    return f"vLLM {version.text} knows no KV cache type {dtype[:64]}.{newer}"


def _yes(backend: str | None, reason: str, *, is_certain: bool = True) -> Support:
    return Support(ok=True, backend=backend, reason=reason, is_certain=is_certain)


def _no(reason: str) -> Support:
    return Support(ok=False, backend=None, reason=reason)


def _sixteen_bit(dtype: str, gpu: Gpu) -> Support:
    capability = gpu.compute_capability
    if dtype == "bfloat16" and capability is not None and capability < _AMPERE:
        return _no("bfloat16 needs compute capability 8.0.")
    return _yes(None, "16-bit caches run on every backend.")


def _without_cuda(dtype: str, gpu: Gpu) -> Support:
    if is_cpu(gpu) and dtype.startswith("fp8"):
        return _yes("CPU attention", "The CPU backend starts with it (0.32.0).")
    if gpu.vendor == "amd" and dtype in {"fp8", "fp8_e4m3", "fp8_e5m2"}:
        return _yes("ROCm attention", "The ROCm backends take 8-bit caches.", is_certain=False)
    if gpu.vendor == "amd" and dtype.startswith(("ultraquant", "octave")):
        return _yes("ROCm attention", "A ROCm format, not verified here.", is_certain=False)
    return _no(f"{dtype} is not known to run on {gpu.name}.")


def _latent(dtype: str, spec: ModelSpec, capability: Capability) -> Support:
    is_sparse = any(
        isinstance(group.mixer, LatentAttention) and group.mixer.index_topk is not None
        for group in spec.layers
    )
    if dtype in {"fp8_ds_mla", "nvfp4_ds_mla"}:
        if not is_sparse:
            return _no(f"{dtype} is a format of sparse latent attention.")
        needs_blackwell = dtype == "nvfp4_ds_mla" and capability[0] != _BLACKWELL[0]
        is_old = capability < _HOPPER
        return (
            _no(f"{dtype} lacks a kernel here.")
            if needs_blackwell or is_old
            else _yes("FLASHMLA_SPARSE", "Sparse latent attention stores it.")
        )
    if dtype not in {"fp8", "fp8_e4m3"}:
        return _no(f"No backend of latent attention takes {dtype}.")
    if capability[0] in {_HOPPER[0], _BLACKWELL[0]}:
        backend = "FLASHMLA" if capability[0] == _HOPPER[0] else "FLASHINFER_MLA"
        return _yes(backend, "Latent attention keeps 8-bit latents.")
    if capability < _AMPERE:
        return _no("No backend of latent attention takes fp8 below compute capability 8.0.")
    return _yes("TRITON_MLA", "Only the Triton backend is left for it.", is_certain=False)


def _grouped(dtype: str, gpu: Gpu, capability: Capability, version: EngineVersion) -> Support:
    if dtype in {"fp8", "fp8_e4m3", "fp8_e5m2"}:
        return _fp8(dtype, gpu, capability, version)
    if dtype.endswith("_per_token_head"):
        return _per_token_head(dtype, capability)
    if dtype.startswith("nvfp4"):
        return _four_bit(dtype, capability)
    if dtype.startswith("turboquant"):
        return _yes("TURBOQUANT", "A packed format of its own backend.", is_certain=False)
    return _no(f"{dtype} is not known to run on {gpu.name}.")


def _per_token_head(dtype: str, capability: Capability) -> Support:
    if dtype.startswith("fp8") and capability < _ADA:
        return _no("The Triton backend stores fp8 only from compute capability 8.9.")
    return _yes("TRITON_ATTN", "The Triton backend scales each token and head.")


def _four_bit(dtype: str, capability: Capability) -> Support:
    is_blackwell = capability[0] == _BLACKWELL[0]
    if dtype == "nvfp4_ds_mla" or (dtype == "nvfp4_4over6" and not is_blackwell):
        return _no(f"{dtype} needs other layers or a data-centre Blackwell part.")
    if capability < _AMPERE:
        return _no(f"FlashInfer stores {dtype} only from compute capability 8.0.")
    return _yes("FLASHINFER", "FlashInfer stores 4-bit caches.", is_certain=is_blackwell)


def _fp8(dtype: str, gpu: Gpu, capability: Capability, version: EngineVersion) -> Support:
    if capability < _AMPERE:
        return _no(f"No attention backend keeps an 8-bit float cache on {gpu.name}.")
    if not version.since("0.11.0") and capability < _HOPPER:
        engine = generation(gpu, version)
        reason = f"The {engine} engine of {version.text} runs it on its older backend only."
        return _yes(None, reason, is_certain=False)
    if capability < _ADA:
        reason = (
            "Only FlashInfer keeps an 8-bit float cache on Ampere; without it the Triton kernels"
            " refuse the type at start."
        )
        return _yes("FLASHINFER", reason, is_certain=dtype == "fp8_e5m2")
    if capability[0] == _HOPPER[0] and dtype != "fp8_e5m2":
        return _yes("FLASH_ATTN", "FlashAttention 3 keeps 8-bit caches on Hopper.")
    return _yes("FLASHINFER", "FlashInfer keeps 8-bit caches.")
