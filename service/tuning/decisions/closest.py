"""Why a configuration that does not start is still shown: it is the closest one."""

from api_schemas.engine import EngineConfig
from api_schemas.explanation import Decision
from api_schemas.recommendation import Binding
from service.tuning.decisions.case import decision
from service.tuning.decisions.sources import MEMORY_MODEL, REQUEST
from service.tuning.search.problem import Problem

_MEANINGS: dict[str, tuple[str, str]] = {
    "tensor_parallel_size": (
        "Less of the weights on each GPU, more exchange between them.",
        "More of the weights on each GPU.",
    ),
    "gpu_memory_utilization": (
        "More memory for vLLM, until nothing is left for bursts; not above 0.95.",
        "Less memory for vLLM.",
    ),
    "max_model_len": ("One request needs more of the cache.", "One request needs less of it."),
    "max_num_seqs": (
        "More requests at once, more memory for the sampler.",
        "Fewer requests at once, less memory for the sampler.",
    ),
    "max_num_batched_tokens": (
        "More tokens a step, more memory for activations.",
        "Fewer tokens a step, less memory for activations.",
    ),
}
_OTHER = ("Not examined: nothing fits yet.", "Not examined: nothing fits yet.")


def decide_closest(problem: Problem, config: EngineConfig, binding: Binding) -> list[Decision]:
    """Return a reason for each setting of the configuration that lacks least."""
    settings = [name for name in config.__struct_fields__ if getattr(config, name) is not None]
    return [_decision(problem, config, binding, name) for name in settings]


def _decision(problem: Problem, config: EngineConfig, binding: Binding, setting: str) -> Decision:
    pinned = getattr(problem.pin, setting) is not None
    higher, lower = _MEANINGS.get(setting, _OTHER)
    reason = (
        "Fixed by the request."
        if pinned
        else f"Part of the configuration that comes closest; it does not start: {binding.detail}"
    )
    return decision(
        setting,
        getattr(config, setting),
        rule="CHO050",
        reason=reason,
        source=(REQUEST,) if pinned else (MEMORY_MODEL,),
        if_higher=higher,
        if_lower=lower,
        confidence="high" if pinned else "medium",
    )
