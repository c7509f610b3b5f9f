"""Memory outside weights, activations and cache: NCCL and context, CUDA graphs, allocator slack."""

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory.constants import constant, constants_row, holds, memory_constants
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import LatentAttention, ModelSpec

_FULL_CAPTURE_SIZES = 51
"""Number of capture sizes up to 512, the default since 0.9."""
_MANY_GPUS = 4
_SHARE_OF_USED_UNTIL = "0.9.1"


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """Degrees of parallelism, all at least 1."""

    tensor: int
    pipeline: int
    data: int
    decode_context: int
    experts: int
    """GPUs that share the experts; 1 without expert parallelism."""


def parallelism(config: EngineConfig, *, num_layers: int) -> Parallelism:
    """Return the degrees that an effective configuration names, at most a stage per layer."""
    tensor = max(1, config.tensor_parallel_size or 1)
    data = max(1, config.data_parallel_size or 1)
    return Parallelism(
        tensor=tensor,
        pipeline=max(1, min(config.pipeline_parallel_size or 1, num_layers)),
        data=data,
        decode_context=max(1, config.decode_context_parallel_size or 1),
        experts=tensor * data if config.enable_expert_parallel else 1,
    )


def non_torch_bytes(
    node: Node, parts: Parallelism, *, config: EngineConfig, version: EngineVersion
) -> float:
    """Return what the CUDA context, NCCL and custom all-reduce add on one GPU, bytes.

    Before 0.9.1 the memory that other processes hold on the device counts as well.
    """
    size = _communication_gib(node, parts, config=config, version=version)
    if parts.data > 1 and parts.experts > 1:
        size += constant("data_and_expert_parallel_gib", version)
    if not version.since(_SHARE_OF_USED_UNTIL):
        size += node.used_memory_gib
    return float(size * GIB)


def _communication_gib(
    node: Node, parts: Parallelism, *, config: EngineConfig, version: EngineVersion
) -> float:
    if node.gpu.vendor == "cpu":
        return constant("cpu_process_gib", version)
    if parts.tensor == 1 and parts.pipeline > 1:
        return constant("pipeline_only_non_torch_gib", version)
    row = constants_row("non_torch_gib", version)
    by_tensor: dict[str, float] = row.get(node.gpu.arch.lower(), row)
    if parts.tensor == 1:
        return by_tensor["tp1"]
    has_link = node.interconnect in ("nvlink", "xgmi") and not config.disable_custom_all_reduce
    if not has_link:
        return float(row["unlinked"])
    if parts.tensor < _MANY_GPUS:
        return by_tensor["tp2"]
    return by_tensor.get("tp8", by_tensor["tp4"]) if parts.tensor > _MANY_GPUS else by_tensor["tp4"]


class GraphMemory(msgspec.Struct, frozen=True, kw_only=True):
    """CUDA graphs of one rank, bytes."""

    real_bytes: float
    charged_bytes: float
    """What the release subtracts from the pool: its own estimate of them."""


class Captures(msgspec.Struct, frozen=True, kw_only=True):
    """How many graphs a rank captures."""

    sizes: int
    """Batch sizes that are captured."""
    decode_sizes: int
    """Those of them that a pure decode batch gets a graph of its own for."""

    @property
    def graphs(self) -> int:
        """All graphs of the rank."""
        return self.sizes + self.decode_sizes


def graph_memory(
    spec: ModelSpec,
    *,
    node: Node,
    num_layers: int,
    captures: Captures,
    uses_v2_runner: bool,
    version: EngineVersion,
    is_estimated: bool | None = None,
) -> GraphMemory:
    """Return the size of the CUDA graphs and what of it the release counts.

    `is_estimated` is `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`; None leaves it to the release.
    """
    if captures.sizes <= 0:
        return GraphMemory(real_bytes=0.0, charged_bytes=0.0)
    size = _graph_bytes_on_hopper(spec, num_layers, captures.sizes, version)
    row = constants_row("graphs", version)
    share = 1.0 if node.gpu.arch == "Hopper" else float(row.get("other_parts_share", 1.0))
    charged = 0.0
    if _charges_graphs(version, uses_v2_runner=uses_v2_runner, is_estimated=is_estimated):
        charged = _estimate_bytes(spec, num_layers=num_layers, captures=captures, version=version)
    return GraphMemory(real_bytes=size * share, charged_bytes=charged)


def _charges_graphs(
    version: EngineVersion, *, uses_v2_runner: bool, is_estimated: bool | None
) -> bool:
    facts = memory_constants()["graph_estimate"]
    if is_estimated is False or not version.since(facts["made_since"]):
        return False
    if uses_v2_runner and holds(memory_constants()["free_graph_profile"], version):
        return False
    return bool(is_estimated) or version.since(facts["charged_since"])


def _estimate_bytes(
    spec: ModelSpec, *, num_layers: int, captures: Captures, version: EngineVersion
) -> float:
    """Return vLLM's own estimate of the graphs, bytes; it is known to be off by GiB."""
    row = constants_row("graph_estimate", version)
    size = float(row["base_gib"])
    size += row["per_layer_and_graph_gib"] * num_layers * captures.graphs
    size += row["mixture_gib"] if spec.is_moe else 0.0
    size += row["sparse_attention_gib"] if _has_sparse_attention(spec) else 0.0
    return float(size * GIB)


def _has_sparse_attention(spec: ModelSpec) -> bool:
    mixers = (group.mixer for group in spec.layers)
    return any(isinstance(m, LatentAttention) and m.index_topk is not None for m in mixers)


def _graph_bytes_on_hopper(
    spec: ModelSpec, num_layers: int, num_capture_sizes: int, version: EngineVersion
) -> float:
    row = constants_row("graphs", version)
    size = row["base_gib"] + row["per_layer_gib"] * num_layers
    size += row["moe_gib"] if spec.is_moe else 0.0
    fixed = float(row["fixed_share"])
    share = fixed + (1 - fixed) * num_capture_sizes / _FULL_CAPTURE_SIZES
    return float(size * share * GIB)


def slack_bytes(*, num_layers: int, uses_v2_runner: bool, version: EngineVersion) -> float:
    """Return what the runner holds beside activations: buffers of V2, allocator remains of V1."""
    if not uses_v2_runner:
        return constant("slack_v1_gib", version) * GIB
    row = constants_row("runner_v2_buffers_gib", version)
    return float((row["base_gib"] + row["per_layer_gib"] * num_layers) * GIB)
