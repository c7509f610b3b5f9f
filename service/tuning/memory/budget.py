"""The memory budget of one vLLM worker: every term of the release, and the KV cache it leaves."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.graphs import capture_sizes
from service.tuning.engine.platform import generation, model_runner, supports_bfloat16
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory import activation, overheads
from service.tuning.memory.additions import added_weight_bytes
from service.tuning.memory.band import available_band_bytes, is_borderline
from service.tuning.memory.cache_layers import element_bytes
from service.tuning.memory.kv_plan import (
    KvLayout,
    KvRules,
    fill_pool,
    largest_length,
    usable_blocks,
)
from service.tuning.memory.plan import GIB, KvPlan, MemoryPlan, Refusal
from service.tuning.memory.stage_cache import cache_rules, resolved_kv_cache_dtype, stage_layout
from service.tuning.models.inventory import ParallelLayout, rank_weight_bytes, stage_layers
from service.tuning.models.online_quantization import as_loaded
from service.tuning.models.spec import ModelSpec

_STATE_BLOCK_CHECK_SINCE = "0.20.0"
"""From here on vLLM wants one recurrent state block per sequence before it captures graphs."""
_FREE_MEMORY_CHECK_SINCE = "0.9.1"
_EXPLICIT_POOL_SINCE = "0.10.2"


class _Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about, with all defaults in place."""

    spec: ModelSpec
    node: Node
    config: EngineConfig
    version: EngineVersion
    draft: ModelSpec | None
    parts: overheads.Parallelism
    rules: KvRules
    uses_v2_runner: bool

    @property
    def layout(self) -> ParallelLayout:
        """The degrees that split the weights."""
        return ParallelLayout(
            tensor_parallel_size=self.parts.tensor,
            pipeline_parallel_size=self.parts.pipeline,
            data_parallel_size=self.parts.data,
            enable_expert_parallel=bool(self.config.enable_expert_parallel),
        )


class _Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage: its terms in bytes, and how it lays out the cache."""

    index: int
    weights: float
    activation: float
    non_torch: float
    graphs: float
    charged_graphs: float
    slack: float
    available: float
    layout: KvLayout | None
    num_blocks: int


def plan_memory(
    *,
    spec: ModelSpec,
    node: Node,
    config: EngineConfig,
    version: EngineVersion,
    draft: ModelSpec | None = None,
) -> MemoryPlan:
    """Return the memory budget of the rank that limits, and the KV cache of that release.

    `config` has every default filled in; `draft` is the model that drafts tokens, when it is one
    of its own. A pool that is too small is a plan with `fits` false, not an error.
    """
    asked = _Deployment(
        spec=_loaded(spec, config),
        node=node,
        config=config,
        version=version,
        draft=draft,
        parts=overheads.parallelism(config, num_layers=spec.num_layers),
        rules=cache_rules(spec=spec, node=node, config=config, version=version),
        uses_v2_runner=model_runner(config, spec=spec, gpu=node.gpu, version=version) == "V2",
    )
    stages = stage_layers(asked.spec, asked.parts.pipeline)
    planned = [_stage(asked, index, layers, len(stages)) for index, layers in enumerate(stages)]
    return _finish(asked, min(planned, key=lambda stage: (stage.num_blocks, stage.available)))


def _loaded(spec: ModelSpec, config: EngineConfig) -> ModelSpec:
    """Return the model as it is loaded: quantised online, without an encoder nobody uses."""
    loaded = as_loaded(spec, config.quantization)
    if loaded.vision is None or activation.loads_encoder(loaded.vision, config):
        return loaded
    return msgspec.structs.replace(loaded, vision=None)


def _stage(asked: _Deployment, index: int, layers: tuple[int, ...], num_stages: int) -> _Stage:
    is_last = index == num_stages - 1
    weights = rank_weight_bytes(asked.spec, asked.layout, stage=index) + added_weight_bytes(
        asked.spec,
        asked.layout,
        config=asked.config,
        node=asked.node,
        version=asked.version,
        draft=asked.draft,
        stage_share=len(layers) / max(1, asked.spec.num_layers),
        is_last=is_last,
    )
    run = _profile_run(asked, is_first=index == 0, is_last=is_last)
    terms = _overheads(asked, num_layers=len(layers))
    peak = activation.activation_bytes(asked.spec, run)
    spent = weights + peak + terms.non_torch + terms.charged_graphs + terms.slack
    available = _requested_bytes(asked) - spent
    layout = stage_layout(
        layers,
        spec=asked.spec,
        config=asked.config,
        rules=asked.rules,
        is_last_stage=is_last,
        draft=asked.draft,
    )
    return _Stage(
        index=index,
        weights=weights,
        activation=peak,
        non_torch=terms.non_torch,
        graphs=terms.graphs,
        charged_graphs=terms.charged_graphs,
        slack=terms.slack,
        available=available,
        layout=layout,
        num_blocks=_num_blocks(asked, layout, _pool_bytes(asked, available)),
    )


class _Overheads(msgspec.Struct, frozen=True, kw_only=True):
    non_torch: float
    graphs: float
    charged_graphs: float
    slack: float


def _overheads(asked: _Deployment, *, num_layers: int) -> _Overheads:
    if asked.node.gpu.vendor == "cpu":
        return _Overheads(non_torch=0.0, graphs=0.0, charged_graphs=0.0, slack=0.0)
    runner = asked.uses_v2_runner
    graphs = overheads.graph_memory(
        asked.spec,
        node=asked.node,
        num_layers=num_layers,
        num_capture_sizes=len(capture_sizes(asked.config, asked.version)),
        uses_v2_runner=runner,
        version=asked.version,
    )
    return _Overheads(
        non_torch=overheads.non_torch_bytes(
            asked.node, asked.parts, config=asked.config, version=asked.version
        ),
        graphs=graphs.real_bytes,
        charged_graphs=graphs.charged_bytes,
        slack=overheads.slack_bytes(
            num_layers=num_layers, uses_v2_runner=runner, version=asked.version
        ),
    )


def _profile_run(asked: _Deployment, *, is_first: bool, is_last: bool) -> activation.ProfileRun:
    config = asked.config
    tokens = max(1, config.max_num_batched_tokens or 1)
    return activation.ProfileRun(
        version=asked.version,
        is_legacy=generation(asked.node.gpu, asked.version) == "V0",
        tokens=tokens,
        sequences=max(1, min(config.max_num_seqs or 1, tokens)),
        dtype_bytes=4 if config.dtype == "float32" else 2,
        tensor_parallel_size=asked.parts.tensor,
        expert_parallel_size=asked.parts.experts,
        is_first_stage=is_first,
        is_last_stage=is_last,
        profiles_encoder=not config.skip_mm_profiling,
        has_flash_attention=supports_bfloat16(asked.node.gpu),
    )


def _requested_bytes(asked: _Deployment) -> float:
    utilization = asked.config.gpu_memory_utilization or 0.0
    return asked.node.total_memory_gib * GIB * utilization


def _explicit_pool_bytes(asked: _Deployment) -> int | None:
    """Return the pool that `kv_cache_memory_bytes` sets, which replaces the whole budget."""
    explicit = asked.config.kv_cache_memory_bytes
    if explicit is None or explicit <= 0 or not asked.version.since(_EXPLICIT_POOL_SINCE):
        return None
    return explicit


def _pool_bytes(asked: _Deployment, available: float) -> float:
    explicit = _explicit_pool_bytes(asked)
    return available if explicit is None else float(explicit)


def _num_blocks(asked: _Deployment, layout: KvLayout | None, pool_bytes: float) -> int:
    override = asked.config.num_gpu_blocks_override
    if override is not None and override > 0:
        return override
    if layout is None or pool_bytes <= 0:
        return 0
    return int(pool_bytes // layout.block_bytes)


def _finish(asked: _Deployment, stage: _Stage) -> MemoryPlan:
    max_model_len = _resolved_length(asked, stage)
    kv = _kv_plan(asked, stage, max_model_len)
    refusals = _refusals(asked, stage, kv, max_model_len)
    pool = _pool_bytes(asked, stage.available)
    return MemoryPlan(
        total_bytes=round(asked.node.total_memory_gib * GIB),
        requested_bytes=round(_requested_bytes(asked)),
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
    )


def _band_bytes(asked: _Deployment, stage: _Stage) -> float:
    if _explicit_pool_bytes(asked) is not None:
        return 0.0
    return available_band_bytes(
        asked.spec,
        node=asked.node,
        version=asked.version,
        weights_bytes=stage.weights,
        charged_graphs_bytes=stage.charged_graphs,
    )


def _resolved_length(asked: _Deployment, stage: _Stage) -> int:
    """Return `max_model_len`, with "auto" resolved to the longest that fits."""
    given = asked.config.max_model_len
    longest = asked.spec.max_position_embeddings
    if isinstance(given, int):
        return max(1, given)
    if stage.layout is None or stage.num_blocks <= 0:
        return longest
    return max(1, largest_length(stage.layout, stage.num_blocks, longest, asked.rules))


def _kv_plan(asked: _Deployment, stage: _Stage, max_model_len: int) -> KvPlan | None:
    if stage.layout is None or stage.num_blocks <= 0:
        return None
    override = asked.config.num_gpu_blocks_override
    pool = _pool_bytes(asked, stage.available)
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
    asked: _Deployment, stage: _Stage, kv: KvPlan | None, max_model_len: int
) -> tuple[Refusal, ...]:
    """Return why vLLM would not start, in the order in which it would notice."""
    found: list[Refusal] = []
    free = (asked.node.total_memory_gib - asked.node.used_memory_gib) * GIB
    if _checks_free_memory(asked) and free < _requested_bytes(asked):
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


def _checks_free_memory(asked: _Deployment) -> bool:
    has_budget = _explicit_pool_bytes(asked) is None
    return has_budget and asked.version.since(_FREE_MEMORY_CHECK_SINCE)


def _lacks_state_blocks(asked: _Deployment, kv: KvPlan) -> bool:
    if asked.config.enforce_eager or not asked.version.since(_STATE_BLOCK_CHECK_SINCE):
        return False
    return asked.spec.is_hybrid and (asked.config.max_num_seqs or 0) > kv.num_blocks
