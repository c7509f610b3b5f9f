"""Which engine generation and model runner a release starts on a GPU."""

from typing import Literal

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Gpu
from service.tuning.models.spec import ModelSpec

Generation = Literal["V0", "V1"]
Runner = Literal["V1", "V2"]

_AMPERE = (8, 0)
_DATACENTER_BLACKWELL = 10
_V2_ALLOWED_MOE = frozenset(
    {"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"}
)
"""Mixture models on Model Runner V2 before it became general: vllm 0.25 to 0.28 config/vllm.py."""
_NEVER_V2_METHODS = frozenset({"suffix", "custom_class"})
"""Speculation that Model Runner V2 lacks: vllm 0.33.0 config/vllm.py."""


def is_cpu(gpu: Gpu) -> bool:
    """Whether vLLM runs on its CPU platform."""
    return gpu.vendor == "cpu"


def generation(gpu: Gpu, version: EngineVersion) -> Generation:
    """Return the engine that starts by default.

    V1 since 0.8.0; GPUs below compute capability 8.0 fell back to V0 until 0.11.0 removed it
    (vllm 0.8.0 to 0.10.2 engine/arg_utils.py).
    """
    if version.is_legacy:
        return "V0"
    capability = gpu.compute_capability
    is_old_gpu = capability is not None and capability < _AMPERE
    return "V0" if is_old_gpu and not version.since("0.11.0") else "V1"


def model_runner(
    config: EngineConfig, *, spec: ModelSpec, gpu: Gpu, version: EngineVersion
) -> Runner:
    """Return the model runner of the V1 engine that starts by default.

    Model Runner V2 served dense attention models and a few mixtures in 0.25 to 0.28, and every
    supported model from 0.29.0 (vllm config/vllm.py of those releases).
    """
    method = speculative_method(config)
    if is_cpu(gpu) or not version.since("0.25.0"):
        return "V1"
    if version.since("0.29.0"):
        return "V1" if method in _NEVER_V2_METHODS else "V2"
    is_allowed = not spec.is_hybrid and (not spec.is_moe or spec.architecture in _V2_ALLOWED_MOE)
    return "V2" if is_allowed and method in {None, "eagle", "eagle3"} else "V1"


def supports_bfloat16(gpu: Gpu) -> bool:
    """Whether the part computes in bfloat16 (NVIDIA: from compute capability 8.0)."""
    return gpu.compute_capability is None or gpu.compute_capability >= _AMPERE


def is_datacenter_blackwell(gpu: Gpu) -> bool:
    """Whether the part is of compute capability 10.x (B200, GB200, B300)."""
    return gpu.compute_capability is not None and (
        gpu.compute_capability[0] == _DATACENTER_BLACKWELL
    )


def speculative_method(config: EngineConfig) -> str | None:
    """Return the method of the speculative settings; None without speculation."""
    method = _speculative(config).get("method") or config.spec_method
    if method is not None:
        return str(method)
    return "draft_model" if _speculative(config) or config.spec_model else None


def speculative_tokens(config: EngineConfig) -> int:
    """Return the draft tokens per step; 0 without speculation."""
    tokens = _speculative(config).get("num_speculative_tokens") or config.spec_tokens
    return tokens if isinstance(tokens, int) and tokens > 0 else 0


def _speculative(config: EngineConfig) -> dict[str, Json]:
    return config.speculative_config or {}
