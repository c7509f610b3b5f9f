"""Which settings of a pick are written down, and which are left to vLLM."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.search.problem import Problem

_SINGLE: tuple[str, ...] = ("pipeline_parallel_size", "data_parallel_size")
_SEARCHED = (
    "tensor_parallel_size",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
)
"""Always written down: their defaults differ by release and GPU, and they decide the fit."""


def emitted(problem: Problem, config: EngineConfig, effective: EngineConfig) -> EngineConfig:
    """Return the configuration to launch with: pins, what was searched, and nothing idle."""
    pin = problem.pin
    changes: dict[str, object] = {name: getattr(effective, name) for name in _SEARCHED}
    for name in _SINGLE:
        if getattr(config, name) == 1 and getattr(pin, name) is None:
            changes[name] = None
    if not config.enable_expert_parallel and pin.enable_expert_parallel is None:
        changes["enable_expert_parallel"] = None
    return msgspec.structs.replace(config, **changes)
