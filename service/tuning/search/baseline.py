"""What a user gets without advice: `vllm serve MODEL` on all GPUs, defaults otherwise."""

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Performance
from api_schemas.slo import TargetOutcome
from service.tuning.memory.plan import MemoryPlan
from service.tuning.rules.domains import legal_tensor_parallel_sizes
from service.tuning.search.obstacles import is_beyond_length
from service.tuning.search.problem import Problem
from service.tuning.search.share import loaded_copies, share_of, slo_of_one
from service.tuning.search.sizing import plan_config
from service.tuning.search.trial import predict_config

_KEPT = ("dtype", "enable_lora", "max_loras", "max_lora_rank", "speculative_config")
"""What the model itself asks for is no tuning."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's own defaults on the same hardware."""

    config: EngineConfig
    effective: EngineConfig
    plan: MemoryPlan
    copies: int
    performance: Performance | None
    """None when it would not start, or would refuse what is typical of the load."""
    outcomes: tuple[TargetOutcome, ...]


def baseline_of(problem: Problem) -> Baseline:
    """Return the baseline, simulated under its share of the load.

    Tensor parallelism is the largest legal size within a node, because that is what people
    start with; further nodes hold copies. Everything else is left to vLLM.
    """
    config = _default_config(problem)
    effective, plan = plan_config(problem, config)
    copies = problem.most_copies(config.tensor_parallel_size or 1)
    performance: Performance | None = None
    outcomes: tuple[TargetOutcome, ...] = ()
    is_refused = is_beyond_length(problem) or _typical_tokens(problem) > plan.max_model_len
    if plan.fits and plan.kv is not None and not is_refused:
        performance, outcomes = predict_config(
            problem,
            effective,
            plan,
            workload=share_of(problem.filled.workload, copies=copies),
            slo=slo_of_one(
                problem.filled.slo, copies=loaded_copies(problem.filled.workload, copies=copies)
            ),
        )
    return Baseline(
        config=config,
        effective=effective,
        plan=plan,
        copies=copies,
        performance=performance,
        outcomes=outcomes,
    )


def _typical_tokens(problem: Problem) -> float:
    """Return prompt and answer of a mean request; vLLM's own length can be below the model's."""
    return problem.demand.prompt_mean_tokens + problem.demand.output_mean_tokens


def _default_config(problem: Problem) -> EngineConfig:
    sizes = legal_tensor_parallel_sizes(
        problem.spec, num_gpus=problem.node.gpus_per_node, version=problem.version
    )
    kept = {name: getattr(problem.base, name) for name in _KEPT}
    size = max(sizes, default=1)
    return EngineConfig(**kept, tensor_parallel_size=size if size > 1 else None)
