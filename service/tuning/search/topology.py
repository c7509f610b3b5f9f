"""Ways to spread one copy of a model over the GPUs of a deployment."""

from collections.abc import Iterator

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.recommendation import Constraints
from service.tuning.engine.facts import is_known
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.models.spec import MixtureOfExperts, ModelSpec
from service.tuning.rules.domains import has_latent_attention, legal_tensor_parallel_sizes

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
    spec: ModelSpec,
    node: Node,
    *,
    version: EngineVersion,
    constraints: Constraints,
    pin: EngineConfig,
) -> tuple[Topology, ...]:
    """Return the layouts that vLLM accepts on this hardware, smallest first.

    Tensor parallelism stays inside a node. Pipeline stages join nodes, and inside a node they
    are worth a look only where GPUs lack a fast link or tensor parallelism cannot reach all of
    them. Data parallelism with whole experts is for mixtures of experts whose cache tensor
    parallelism would only copy. One copy spreads over MIG slices only where that is pinned: NCCL
    hardly joins them (rule PAR021).
    """
    space = _Space(spec=spec, node=node, version=version, constraints=constraints, pin=pin)
    layouts = {*_all(space), *_pinned(space)}
    found = {t for t in layouts if t.gpus <= node.num_gpus and _obeys(t, pin)}
    return tuple(sorted(found, key=lambda t: (t.gpus, t)))


class _Space(msgspec.Struct, frozen=True, kw_only=True):
    spec: ModelSpec
    node: Node
    version: EngineVersion
    constraints: Constraints
    pin: EngineConfig

    @property
    def largest(self) -> int:
        """Most GPUs that one tensor-parallel group may take; slices are not joined unasked."""
        if self.node.gpu.is_slice and self.pin.tensor_parallel_size is None:
            return 1
        allowed = self.constraints.max_tensor_parallel_size
        return min(self.node.gpus_per_node, allowed or self.node.gpus_per_node)

    def tensor_sizes(
        self, *, enable_expert_parallel: bool = False, data_parallel_size: int = 1
    ) -> tuple[int, ...]:
        """Tensor-parallel sizes that divide the model."""
        return legal_tensor_parallel_sizes(
            self.spec,
            num_gpus=self.largest,
            version=self.version,
            enable_expert_parallel=enable_expert_parallel,
            data_parallel_size=data_parallel_size,
        )


def _all(space: _Space) -> Iterator[Topology]:
    sizes = space.tensor_sizes()
    for size in sizes:
        yield Topology(tensor_parallel_size=size)
        yield from _pipelines(space, size=size, largest_legal=max(sizes))
    if space.spec.is_moe:
        yield from _expert_layouts(space, sizes)


def _pipelines(space: _Space, *, size: int, largest_legal: int) -> Iterator[Topology]:
    if not space.spec.supports_pp or space.node.gpu.is_slice:
        return
    node = space.node
    stages: set[int] = set()
    slow = node.interconnect not in _FAST_LINKS
    if slow or largest_legal < node.gpus_per_node:
        stages |= set(range(2, node.gpus_per_node // size + 1))
    if node.nodes > 1 and size == largest_legal:
        stages |= set(range(2, node.num_gpus // size + 1))
    for count in sorted(stages):
        if count <= space.spec.num_layers:
            yield Topology(tensor_parallel_size=size, pipeline_parallel_size=count)


def _expert_layouts(space: _Space, sizes: tuple[int, ...]) -> Iterator[Topology]:
    """Yield whole experts per rank: over the tensor group, or over data-parallel ranks."""
    for size in space.tensor_sizes(enable_expert_parallel=True):
        if size not in sizes:
            yield Topology(tensor_parallel_size=size, enable_expert_parallel=True)
    if not is_known("data_parallel_size", space.version) or not has_latent_attention(space.spec):
        return
    if space.node.gpu.is_slice:
        return
    ranks = _most_even_ranks(space.spec, space.node.gpus_per_node)
    if ranks > 1:
        yield Topology(
            tensor_parallel_size=1, data_parallel_size=ranks, enable_expert_parallel=True
        )


def _most_even_ranks(spec: ModelSpec, gpus: int) -> int:
    """Return the most GPUs of a node that whole experts spread over evenly; some may stay idle."""
    return next(ranks for ranks in range(gpus, 0, -1) if _spreads_evenly(spec, ranks))


def _spreads_evenly(spec: ModelSpec, ranks: int) -> bool:
    """Whether every rank holds as many whole experts: vLLM refuses others since 0.27.0."""
    experts = {
        group.feed_forward.num_experts
        for group in spec.layers
        if isinstance(group.feed_forward, MixtureOfExperts)
    }
    return all(count % ranks == 0 for count in experts)


def _pinned(space: _Space) -> Iterator[Topology]:
    """Yield the layouts that only a pin asks for: stages, ranks or whole experts of its own."""
    pin = space.pin
    stages, ranks = pin.pipeline_parallel_size or 1, pin.data_parallel_size or 1
    whole = bool(pin.enable_expert_parallel) and space.spec.is_moe
    if stages > 1 and not space.spec.supports_pp:
        return
    for size in space.tensor_sizes(enable_expert_parallel=whole, data_parallel_size=ranks):
        yield Topology(
            tensor_parallel_size=size,
            pipeline_parallel_size=stages,
            data_parallel_size=ranks,
            enable_expert_parallel=whole,
        )


def _obeys(topology: Topology, pin: EngineConfig) -> bool:
    pinned = (
        (pin.tensor_parallel_size, topology.tensor_parallel_size),
        (pin.pipeline_parallel_size, topology.pipeline_parallel_size),
        (pin.data_parallel_size, topology.data_parallel_size),
        (pin.enable_expert_parallel, topology.enable_expert_parallel),
    )
    return all(given is None or given == value for given, value in pinned)
