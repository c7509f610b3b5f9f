"""The memory budget of one vLLM worker: every term of the release, and the KV cache it leaves."""

from collections.abc import Mapping

from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import model_runner
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory import overheads
from service.tuning.memory.band import available_band_bytes, is_borderline
from service.tuning.memory.cache_layers import element_bytes
from service.tuning.memory.kv_plan import fill_pool, largest_length, usable_blocks
from service.tuning.memory.plan import GIB, KvPlan, MemoryPlan, Refusal
from service.tuning.memory.stage import (
    Deployment,
    Stage,
    as_served,
    explicit_pool_bytes,
    plan_stage,
    pool_bytes,
    requested_bytes,
)
from service.tuning.memory.stage_cache import cache_rules, resolved_kv_cache_dtype
from service.tuning.models.inventory import stage_layers
from service.tuning.models.spec import ModelSpec

_STATE_BLOCK_CHECK_SINCE = "0.20.0"
"""From here on vLLM wants one recurrent state block per sequence before it captures graphs."""
_FREE_MEMORY_CHECK_SINCE = "0.9.1"


def plan_memory(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    draft: ModelSpec | None = None,
    env: Mapping[str, str] | None = None,
) -> MemoryPlan:
    """Return the memory budget of the rank that limits, and the KV cache of that release.

    `config` has every default filled in; `draft` is the model that drafts tokens, when it is one
    of its own; `env` is the server's environment, which can switch vLLM's estimate of the CUDA
    graphs on or off. A pool that is too small is a plan with `fits` false, not an error.
    """
    asked = Deployment(
        spec=as_served(spec, config),
        node=node,
        config=config,
        version=version,
        draft=draft,
        parts=overheads.parallelism(config, num_layers=spec.num_layers),
        rules=cache_rules(spec=spec, node=node, config=config, version=version),
        uses_v2_runner=model_runner(config, spec=spec, gpu=node.gpu, version=version) == "V2",
        env=env or {},
    )
    stages = stage_layers(asked.spec, asked.parts.pipeline)
    planned = [plan_stage(asked, index, layers, len(stages)) for index, layers in enumerate(stages)]
    return _finish(asked, min(planned, key=lambda stage: (stage.num_blocks, stage.available)))


def _finish(asked: Deployment, stage: Stage) -> MemoryPlan:
    max_model_len = _resolved_length(asked, stage)
    kv = _kv_plan(asked, stage, max_model_len)
    refusals = _refusals(asked, stage, kv, max_model_len)
    pool = pool_bytes(asked, stage.available)
    return MemoryPlan(
        total_bytes=round(asked.node.total_memory_gib * GIB),
        requested_bytes=round(requested_bytes(asked)),
        weights_bytes=stage.weights,
        activation_bytes=stage.activation,
        non_torch_bytes=stage.non_torch,
        cuda_graphs_bytes=stage.graphs,
        charged_graphs_bytes=stage.charged_graphs,
        slack_bytes=stage.slack,
        available_bytes=pool,
        band_bytes=_band_bytes(asked, stage),
        limiting_rank=f"pipeline stage {stage.index}",
        kv=kv,
        max_model_len=max_model_len,
        fits=not refusals,
        borderline=kv is not None and is_borderline(kv.max_concurrency),
        refusals=refusals,
        kv_bytes_per_token=stage.layout.bytes_per_token if stage.layout is not None else 0.0,
    )


def _band_bytes(asked: Deployment, stage: Stage) -> float:
    if explicit_pool_bytes(asked) is not None:
        return 0.0
    return available_band_bytes(
        asked.spec,
        node=asked.node,
        version=asked.version,
        weights_bytes=stage.weights,
        charged_graphs_bytes=stage.charged_graphs,
        is_data_parallel=asked.parts.data > 1,
    )


def _resolved_length(asked: Deployment, stage: Stage) -> int:
    """Return `max_model_len`, with "auto" resolved to the longest that fits."""
    given = asked.config.max_model_len
    longest = asked.spec.max_position_embeddings
    if isinstance(given, int):
        return max(1, given)
    if stage.layout is None or stage.num_blocks <= 0:
        return longest
    return max(1, largest_length(stage.layout, stage.num_blocks, longest, asked.rules))


def _kv_plan(asked: Deployment, stage: Stage, max_model_len: int) -> KvPlan | None:
    if stage.layout is None or stage.num_blocks <= 0:
        return None
    override = asked.config.num_gpu_blocks_override
    pool = pool_bytes(asked, stage.available)
    if override is not None and override > 0:
        pool = float(override * stage.layout.block_bytes)
    return fill_pool(
        stage.layout,
        num_blocks=stage.num_blocks,
        kv_cache_bytes=pool,
        max_model_len=max_model_len,
        longest_model_len=max(1, asked.spec.max_position_embeddings),
        rules=asked.rules,
        element_bytes=element_bytes(resolved_kv_cache_dtype(asked.config)),
    )


def _refusals(
    asked: Deployment, stage: Stage, kv: KvPlan | None, max_model_len: int
) -> tuple[Refusal, ...]:
    """Return why vLLM would not start, in the order in which it would notice."""
    found: list[Refusal] = []
    free = (asked.node.total_memory_gib - asked.node.used_memory_gib) * GIB
    if _checks_free_memory(asked) and free < requested_bytes(asked):
        found.append("free_memory")
    if stage.weights > free:
        return (*found, "weights")
    if kv is None:
        return (*found, "no_memory") if stage.layout is not None else tuple(found)
    if kv.request_blocks(max_model_len) > usable_blocks(kv.num_blocks, asked.rules):
        found.append("one_request")
    if _lacks_state_blocks(asked, kv):
        found.append("state_blocks")
    return tuple(found)


def _checks_free_memory(asked: Deployment) -> bool:
    has_budget = explicit_pool_bytes(asked) is None
    return has_budget and asked.version.since(_FREE_MEMORY_CHECK_SINCE)


def _lacks_state_blocks(asked: Deployment, kv: KvPlan) -> bool:
    if asked.config.enforce_eager or not asked.version.since(_STATE_BLOCK_CHECK_SINCE):
        return False
    return asked.spec.is_hybrid and (asked.config.max_num_seqs or 0) > kv.num_blocks
