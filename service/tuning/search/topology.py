"""Ways to spread one copy of a model over the GPUs of a deployment."""

from collections.abc import Iterator

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Constraints
from service.tuning.hardware.spec import Node
from service.tuning.models.inventory import ParallelLayout
from service.tuning.models.spec import LatentAttention, ModelSpec
from service.tuning.rules.domains import legal_tensor_parallel_sizes

_FAST_LINKS = frozenset({"nvlink", "xgmi"})


class Topology(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One copy's layout; its GPUs are tensor x pipeline x data parallel."""

    tensor_parallel_size: int
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        """GPUs that one copy takes."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def layout(self) -> ParallelLayout:
        """The same for the weight inventory."""
        return ParallelLayout(
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            data_parallel_size=self.data_parallel_size,
            enable_expert_parallel=self.enable_expert_parallel,
        )

    @property
    def label(self) -> str:
        """Short name for people: TP4, TP8 PP2, DP8 EP."""
        parts = [f"TP{self.tensor_parallel_size}"]
        if self.pipeline_parallel_size > 1:
            parts.append(f"PP{self.pipeline_parallel_size}")
        if self.data_parallel_size > 1:
            parts.append(f"DP{self.data_parallel_size}")
        if self.enable_expert_parallel:
            parts.append("EP")
        return " ".join(parts)


def legal_topologies(
    spec: ModelSpec, node: Node, *, constraints: Constraints, pin: EngineConfig
) -> tuple[Topology, ...]:
    """Return the layouts that vLLM accepts on this hardware, smallest first.

    Tensor parallelism stays inside a node. Pipeline stages join nodes, and inside a node they
    are worth a look only where GPUs lack a fast link or tensor parallelism cannot reach all of
    them. Data parallelism with whole experts is for mixtures of experts.
    """
    found = {
        topology
        for topology in _all(spec, node, constraints=constraints)
        if topology.gpus <= node.num_gpus and _obeys(topology, pin)
    }
    return tuple(sorted(found, key=lambda t: (t.gpus, t)))


def _all(spec: ModelSpec, node: Node, *, constraints: Constraints) -> Iterator[Topology]:
    largest = min(node.gpus_per_node, constraints.max_tensor_parallel_size or node.gpus_per_node)
    sizes = [n for n in legal_tensor_parallel_sizes(spec, largest) if n <= largest]
    for size in sizes:
        yield Topology(tensor_parallel_size=size)
        yield from _pipelines(spec, node, size=size, largest_legal=max(sizes))
    if spec.is_moe:
        yield from _expert_layouts(spec, node, largest=largest, sizes=sizes)


def _pipelines(
    spec: ModelSpec, node: Node, *, size: int, largest_legal: int
) -> Iterator[Topology]:
    if not spec.supports_pp:
        return
    stages = set()
    slow = node.interconnect not in _FAST_LINKS
    if slow or largest_legal < node.gpus_per_node:
        stages |= {p for p in range(2, node.gpus_per_node // size + 1)}
    if node.nodes > 1 and size == largest_legal:
        stages |= {p for p in range(2, node.num_gpus // size + 1)}
    for p in sorted(stages):
        if p <= spec.num_layers:
            yield Topology(tensor_parallel_size=size, pipeline_parallel_size=p)


def _expert_layouts(
    spec: ModelSpec, node: Node, *, largest: int, sizes: list[int]
) -> Iterator[Topology]:
    """Yield whole experts per rank: over the tensor group, or over data-parallel ranks."""
    for size in legal_tensor_parallel_sizes(spec, largest, enable_expert_parallel=True):
        if size not in sizes and size <= largest:
            yield Topology(tensor_parallel_size=size, enable_expert_parallel=True)
    has_latent = any(isinstance(group.mixer, LatentAttention) for group in spec.layers)
    if has_latent and node.gpus_per_node > 1:
        yield Topology(
            tensor_parallel_size=1,
            data_parallel_size=node.gpus_per_node,
            enable_expert_parallel=True,
        )


def _obeys(topology: Topology, pin: EngineConfig) -> bool:
    pinned = (
        (pin.tensor_parallel_size, topology.tensor_parallel_size),
        (pin.pipeline_parallel_size, topology.pipeline_parallel_size),
        (pin.data_parallel_size, topology.data_parallel_size),
        (pin.enable_expert_parallel, topology.enable_expert_parallel),
    )
    return all(given is None or given == value for given, value in pinned)
