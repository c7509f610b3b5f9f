"""Default `block_size`: tokens per KV block before hybrids align it."""

from typing import Literal

from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import is_cpu, is_datacenter_blackwell
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu
from service.tuning.models.spec import LatentAttention, ModelSpec

_DEFAULT = 16
_CPU_DEFAULT = 128
"""vllm 0.32.0 CPU build; its kernels want multiples of 32."""
_HOPPER = 9
Latent = Literal["none", "dense", "sparse"]


def default_block_size(
    config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion
) -> int:
    """Return the tokens per block that vLLM takes when `block_size` is left out.

    16, raised to the smallest size that the attention backend accepts. `kv_cache_dtype` must be
    resolved. Hybrids raise it further to align pages, which is part of the memory plan.
    Sources: vllm platforms/cuda.py 0.8 to 0.17 (forced sizes for latent attention),
    platforms/interface.py and v1/attention/backends of 0.18 to 0.33.
    """
    latent = _latent_attention(spec)
    if is_cpu(gpu):
        return _DEFAULT if latent != "none" else _CPU_DEFAULT
    if latent == "sparse":
        return 64
    if latent == "dense":
        return _dense_latent_block(config, gpu=gpu, version=version)
    return _DEFAULT


def _dense_latent_block(config: EngineConfig, *, gpu: Gpu, version: EngineVersion) -> int:
    """Return the block of the latent-attention backend that is picked first."""
    is_forced = not version.since("0.18.0")
    if is_datacenter_blackwell(gpu):
        return 128 if is_forced and version.since("0.9.2") else 32
    if gpu.compute_capability is None or gpu.compute_capability[0] != _HOPPER:
        return _DEFAULT
    # FlashMLA knows only 64; FlashAttention's variant takes over later, but not for fp8.
    needs_flash_mla = is_forced or (config.kv_cache_dtype or "auto").startswith("fp8")
    return 64 if needs_flash_mla else _DEFAULT


def _latent_attention(spec: ModelSpec) -> Latent:
    mixers = [group.mixer for group in spec.layers if isinstance(group.mixer, LatentAttention)]
    if not mixers:
        return "none"
    return "sparse" if any(mixer.index_topk is not None for mixer in mixers) else "dense"
