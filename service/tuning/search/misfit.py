"""A layout that does not fit, and what stands in the way."""

from typing import Literal

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.memory.plan import GIB, MemoryPlan
from service.tuning.search.problem import Problem
from service.tuning.search.topology import Topology

Obstacle = Literal["weights", "memory", "length", "other_users", "state_blocks"]


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A layout that does not fit, and what stands in the way."""

    topology: Topology
    kv_cache_dtype: str | None
    obstacle: Obstacle
    detail: str
    config: EngineConfig
    plan: MemoryPlan
    missing_gib: float
    """More memory per GPU that would make it fit, about."""


def misfit_of(
    problem: Problem,
    topology: Topology,
    kv_cache_dtype: str | None,
    config: EngineConfig,
    plan: MemoryPlan,
) -> Misfit:
    """Return the layout with its obstacle and the memory that is missing."""
    obstacle, detail, missing = _explain(problem, config, plan)
    return Misfit(
        topology=topology,
        kv_cache_dtype=kv_cache_dtype,
        obstacle=obstacle,
        detail=detail,
        config=config,
        plan=plan,
        missing_gib=missing / GIB,
    )


def _explain(
    problem: Problem, config: EngineConfig, plan: MemoryPlan
) -> tuple[Obstacle, str, float]:
    """Return what stands in the way, in one sentence, and the bytes that are missing."""
    if "free_memory" in plan.refusals:
        return _explain_others(problem, plan)
    if plan.kv is None or plan.available_bytes <= 0:
        return _explain_empty_pool(problem, plan)
    if plan.refusals == ("state_blocks",):
        detail = (
            f"Each running request needs a state block, but the pool holds only "
            f"{plan.kv.num_blocks} for {config.max_num_seqs} requests."
        )
        return "state_blocks", detail, float(plan.kv.block_bytes)
    length = config.max_model_len
    needed = plan.kv.request_blocks(length if isinstance(length, int) else plan.max_model_len)
    detail = (
        f"The KV cache of {plan.available_bytes / GIB:.1f} GiB holds a request of "
        f"{plan.kv.largest_max_model_len} tokens at most, but {length} are needed."
    )
    return "length", detail, float((needed - plan.kv.num_blocks + 1) * plan.kv.block_bytes)


def _explain_others(problem: Problem, plan: MemoryPlan) -> tuple[Obstacle, str, float]:
    free_gib = problem.node.total_memory_gib - problem.node.used_memory_gib
    detail = (
        f"vLLM would ask for {plan.requested_bytes / GIB:.1f} GiB, but others leave only "
        f"{free_gib:.1f} GiB of the {problem.node.gpu.kind} free."
    )
    return "other_users", detail, plan.requested_bytes - free_gib * GIB


def _explain_empty_pool(problem: Problem, plan: MemoryPlan) -> tuple[Obstacle, str, float]:
    weights_gib, share_gib = plan.weights_bytes / GIB, plan.requested_bytes / GIB
    if plan.weights_bytes >= plan.requested_bytes:
        detail = (
            f"The weights take {weights_gib:.1f} GiB of each {problem.node.gpu.kind}, but vLLM may "
            f"use only {share_gib:.1f} GiB of {problem.node.total_memory_gib:.1f} GiB."
        )
        return "weights", detail, -plan.available_bytes
    others_gib = share_gib - weights_gib - plan.available_bytes / GIB
    detail = (
        f"After {weights_gib:.1f} GiB of weights and {others_gib:.1f} GiB of working memory "
        f"nothing of {share_gib:.1f} GiB is left for the KV cache."
    )
    return "memory", detail, -plan.available_bytes
