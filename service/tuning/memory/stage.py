"""One pipeline stage of a deployment: its memory terms, and how it lays out the cache."""

from collections.abc import Mapping

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import generation, speculative_method, supports_bfloat16
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory import activation, overheads
from service.tuning.memory.additions import added_weight_bytes
from service.tuning.memory.kv_plan import KvLayout, KvRules
from service.tuning.memory.plan import GIB
from service.tuning.memory.stage_cache import stage_layout
from service.tuning.models.inventory import ParallelLayout, rank_weight_bytes
from service.tuning.models.online_quantization import as_loaded
from service.tuning.models.spec import ModelSpec

_EXPLICIT_POOL_SINCE = "0.10.2"
_GRAPH_ESTIMATE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
_FLASHINFER_SAMPLER = "VLLM_USE_FLASHINFER_SAMPLER"
_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Names of one setting; newer releases of PyTorch prefer the first (c10/core/AllocatorConfig)."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about, with all defaults in place."""

    spec: ModelSpec
    node: Node
    config: EngineConfig
    version: EngineVersion
    draft: ModelSpec | None
    parts: overheads.Parallelism
    rules: KvRules
    uses_v2_runner: bool
    env: Mapping[str, str]

    @property
    def layout(self) -> ParallelLayout:
        """The degrees that split the weights."""
        return ParallelLayout(
            tensor_parallel_size=self.parts.tensor,
            pipeline_parallel_size=self.parts.pipeline,
            data_parallel_size=self.parts.data,
            enable_expert_parallel=bool(self.config.enable_expert_parallel),
        )


class Stage(msgspec.Struct, frozen=True, kw_only=True):
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


def as_served(spec: ModelSpec, config: EngineConfig) -> ModelSpec:
    """Return the model as it is loaded: quantised online, without an encoder nobody uses."""
    loaded = as_loaded(spec, config.quantization)
    if loaded.vision is None or activation.loads_encoder(loaded.vision, config):
        return loaded
    return msgspec.structs.replace(loaded, vision=None)


def _stage_weight_bytes(
    asked: Deployment, index: int, *, layer_share: float, is_last: bool
) -> float:
    """Return what the fullest rank of a stage keeps of weights on the GPU."""
    added = added_weight_bytes(
        asked.spec,
        asked.layout,
        config=asked.config,
        version=asked.version,
        draft=asked.draft,
        stage_share=layer_share,
        is_last=is_last,
    )
    loaded = rank_weight_bytes(
        asked.spec,
        asked.layout,
        stage=index,
        expandable_segments=_has_expandable_segments(asked.env),
    )
    loaded += added
    return max(0.0, loaded - (asked.config.cpu_offload_gb or 0.0) * GIB)


def _has_expandable_segments(env: Mapping[str, str]) -> bool:
    """Whether the environment lets PyTorch's segments grow in place."""
    stated = next((env[name] for name in _ALLOCATOR_SETTINGS if name in env), "")
    return "expandable_segments:true" in stated.replace(" ", "").lower()


def plan_stage(asked: Deployment, index: int, layers: tuple[int, ...], num_stages: int) -> Stage:
    """Return the terms of one stage, and how many blocks its cache has."""
    is_last = index == num_stages - 1
    weights = _stage_weight_bytes(
        asked,
        index,
        layer_share=len(layers) / max(1, asked.spec.num_layers),
        is_last=is_last,
    )
    run = _profile_run(asked, is_first=index == 0, is_last=is_last)
    terms = _overheads(asked, num_layers=len(layers))
    peak = activation.activation_bytes(asked.spec, run)
    spent = weights + peak + terms.non_torch + terms.charged_graphs + terms.slack
    available = requested_bytes(asked) - spent
    layout = stage_layout(
        layers,
        spec=asked.spec,
        config=asked.config,
        rules=asked.rules,
        is_last_stage=is_last,
        draft=asked.draft,
    )
    return Stage(
        index=index,
        weights=weights,
        activation=peak,
        non_torch=terms.non_torch,
        graphs=terms.graphs,
        charged_graphs=terms.charged_graphs,
        slack=terms.slack,
        available=available,
        layout=layout,
        num_blocks=_num_blocks(asked, layout, pool_bytes(asked, available)),
    )


class _Overheads(msgspec.Struct, frozen=True, kw_only=True):
    non_torch: float
    graphs: float
    charged_graphs: float
    slack: float


def _overheads(asked: Deployment, *, num_layers: int) -> _Overheads:
    non_torch = overheads.non_torch_bytes(
        asked.node, asked.parts, config=asked.config, version=asked.version
    )
    if asked.node.gpu.vendor == "cpu":
        return _Overheads(non_torch=non_torch, graphs=0.0, charged_graphs=0.0, slack=0.0)
    runner = asked.uses_v2_runner
    graphs = overheads.graph_memory(
        asked.spec,
        node=asked.node,
        num_layers=num_layers,
        captures=_captures(asked),
        uses_v2_runner=runner,
        version=asked.version,
        is_estimated=_is_on(asked.env, _GRAPH_ESTIMATE),
    )
    return _Overheads(
        non_torch=non_torch,
        graphs=graphs.real_bytes,
        charged_graphs=graphs.charged_bytes,
        slack=overheads.slack_bytes(
            num_layers=num_layers, uses_v2_runner=runner, version=asked.version
        ),
    )


def _captures(asked: Deployment) -> overheads.Captures:
    """Return the graphs of a rank: with drafted tokens few backends capture decode batches."""
    sizes = asked.config.cudagraph_capture_sizes or ()
    largest = 0 if speculative_method(asked.config) else asked.config.max_num_seqs or 0
    return overheads.Captures(sizes=len(sizes), decode_sizes=sum(size <= largest for size in sizes))


def _is_on(env: Mapping[str, str], name: str) -> bool | None:
    """Return what the environment says of a switch; None when it says nothing."""
    stated = env.get(name)
    return None if stated is None else stated.strip() not in ("0", "")


def _profile_run(asked: Deployment, *, is_first: bool, is_last: bool) -> activation.ProfileRun:
    config, tower = asked.config, asked.spec.vision
    tokens = max(1, config.max_num_batched_tokens or 1)
    return activation.ProfileRun(
        version=asked.version,
        is_legacy=generation(asked.node.gpu, asked.version) == "V0",
        tokens=tokens,
        sequences=max(1, min(config.max_num_seqs or 1, tokens)),
        dtype_bytes=4 if config.dtype == "float32" else 2,
        tensor_parallel_size=asked.parts.tensor,
        expert_parallel_size=asked.parts.experts,
        data_parallel_size=asked.parts.data,
        uses_v2_runner=asked.uses_v2_runner,
        uses_flashinfer_sampler=_is_on(asked.env, _FLASHINFER_SAMPLER),
        is_first_stage=is_first,
        is_last_stage=is_last,
        profiles_encoder=not config.skip_mm_profiling,
        most_images=None if tower is None else activation.most_images(tower, config),
        has_flash_attention=supports_bfloat16(asked.node.gpu),
    )


def requested_bytes(asked: Deployment) -> float:
    """Return the share of the GPU that vLLM asks for, bytes."""
    utilization = asked.config.gpu_memory_utilization or 0.0
    return asked.node.total_memory_gib * GIB * utilization


def explicit_pool_bytes(asked: Deployment) -> int | None:
    """Return the pool that `kv_cache_memory_bytes` sets, which replaces the whole budget."""
    explicit = asked.config.kv_cache_memory_bytes
    if explicit is None or explicit <= 0 or not asked.version.since(_EXPLICIT_POOL_SINCE):
        return None
    return explicit


def pool_bytes(asked: Deployment, available: float) -> float:
    """Return the memory of the KV cache: what is left, or what was set."""
    explicit = explicit_pool_bytes(asked)
    return available if explicit is None else float(explicit)


def _num_blocks(asked: Deployment, layout: KvLayout | None, pool: float) -> int:
    override = asked.config.num_gpu_blocks_override
    if override is not None and override > 0:
        return override
    if layout is None or pool <= 0:
        return 0
    return int(pool // layout.block_bytes)
