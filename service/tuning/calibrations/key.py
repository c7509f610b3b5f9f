"""Which measurements speak for which configurations: all that decides how long a step takes.

Limits of the scheduler (sequences, token budget, memory share, length) are not part of it: they
shape the batches, which are simulated, and not the price of one.
"""

import hashlib

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.model import Speculative
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.latency.classes import link_of
from service.tuning.models.spec import ModelSpec

_DIGITS = 12
_CHOOSE_KERNELS = (
    "all2all_backend",
    "async_scheduling",
    "attention_backend",
    "compilation_config",
    "disable_custom_all_reduce",
    "enable_dbo",
    "gdn_prefill_backend",
    "linear_backend",
    "mamba_backend",
    "moe_backend",
    "optimization_level",
    "performance_mode",
)
"""What a setting of these costs or saves the latency model does not know: on one L40S another
attention backend served 17 % less, on one H200 the throughput mode up to 33 % more."""


class ConfigurationKey(msgspec.Struct, frozen=True, kw_only=True):
    """Model, GPU, number formats, split and release of a configuration."""

    model: str
    """Digest of what the model is made of: fine-tunes of one architecture share it."""
    gpu: str
    link: str
    """How the GPUs of one replica talk to each other; "none" when there is one."""
    precision: str
    dtype: str
    kv_cache_dtype: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    decode_context_parallel_size: int
    enable_expert_parallel: bool
    enforce_eager: bool
    drafted_tokens: int
    kernels: str = ""
    """Settings that choose other kernels or another overlap of work, as `name=value`."""
    release: str
    """Major and minor version of vLLM."""

    @property
    def text(self) -> str:
        """A short digest: equal keys, equal text."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def configuration_key(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    speculative: Speculative | None = None,
) -> ConfigurationKey:
    """Return the key of an effective configuration."""
    tensor = max(config.tensor_parallel_size or 1, 1)
    pipeline = max(config.pipeline_parallel_size or 1, 1)
    ranks = tensor * pipeline
    return ConfigurationKey(
        model=model_digest(spec),
        gpu=gpu_name(node.gpu),
        link=link_of(node, ranks=ranks)[0] if ranks > 1 else "none",
        precision=precision_of(spec),
        dtype=config.dtype or "auto",
        kv_cache_dtype=config.kv_cache_dtype or "auto",
        tensor_parallel_size=tensor,
        pipeline_parallel_size=pipeline,
        data_parallel_size=max(config.data_parallel_size or 1, 1),
        decode_context_parallel_size=max(config.decode_context_parallel_size or 1, 1),
        enable_expert_parallel=bool(config.enable_expert_parallel),
        enforce_eager=bool(config.enforce_eager),
        drafted_tokens=_drafted_tokens(config, speculative),
        kernels=_kernels(config),
        release=release_of(version),
    )


def model_digest(spec: ModelSpec) -> str:
    """Return what identifies the model's work: layers, widths and formats, not its name."""
    made_of = (
        spec.hidden_size,
        spec.vocab_size,
        spec.dtype,
        spec.layers,
        spec.quantization,
        spec.vision is not None,
    )
    return hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()[:_DIGITS]


def gpu_name(gpu: Gpu) -> str:
    """Return the catalogue name; of a described GPU also a digest of its figures."""
    if not gpu.is_custom:
        return gpu.name
    return f"{gpu.name}#{hashlib.sha256(msgspec.json.encode(gpu)).hexdigest()[:_DIGITS]}"


def precision_of(spec: ModelSpec) -> str:
    """Return the format of most weights."""
    return spec.quantization.scheme if spec.quantization is not None else spec.dtype


def release_of(version: EngineVersion) -> str:
    """Return major and minor version: patch releases run the same kernels."""
    major, minor, _ = version.release
    return f"{major}.{minor}"


def _kernels(config: EngineConfig) -> str:
    stated = ((name, getattr(config, name)) for name in _CHOOSE_KERNELS)
    return " ".join(
        f"{name}={msgspec.json.encode(value, order='sorted').decode()}"
        for name, value in stated
        if value is not None
    )


def _drafted_tokens(config: EngineConfig, speculative: Speculative | None) -> int:
    stated = (config.speculative_config or {}).get("num_speculative_tokens")
    if isinstance(stated, int):
        return stated
    return speculative.num_tokens if speculative is not None else 0
