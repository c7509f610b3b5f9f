"""The accelerators that Setpoint knows, and the node that a request describes."""

from api_schemas.explanation import Finding, Source
from api_schemas.hardware import Hardware, Interconnect
from service.tuning.errors import InvalidRequest, UnknownGpu
from service.tuning.hardware.custom import custom_gpu
from service.tuning.hardware.naming import Match, match_name
from service.tuning.hardware.parts import (
    Figure,
    FigureSource,
    GpuEntry,
    Instance,
    ambiguous_names,
    entries,
    figure_sources,
    gpus,
    instances,
)
from service.tuning.hardware.spec import Gpu, Node

__all__ = [
    "Figure",
    "FigureSource",
    "GpuEntry",
    "Instance",
    "all_gpus",
    "figure_sources",
    "find_gpu",
    "gpu_aliases",
    "gpu_entry",
    "instances",
    "resolve_hardware",
]

_MEMORY_TOLERANCE = 0.1
_SAME_MEMORY_TOLERANCE = 0.05
_SOURCE = [Source(title="Setpoint's hardware catalogue", where="GET /gpus")]


def resolve_hardware(hardware: Hardware) -> tuple[Node, tuple[Finding, ...]]:
    """Return the node that `hardware` describes, and what the caller should know about it.

    Raises UnknownGpu for a name that means nothing here, and InvalidRequest for values that
    contradict the part or the instance.
    """
    match = _match(hardware)
    gpu, name_finding = _choose(match.gpus, hardware=hardware)
    count = _gpus_per_node(match, gpu=gpu, hardware=hardware)
    interconnect, link_finding = _interconnect(gpu, count=count, stated=hardware.interconnect)
    host_memory_gib = _host_memory_gib(match.instance, hardware=hardware)
    total_gib = hardware.total_memory_gib or _installed_gib(gpu, host_memory_gib)
    _reject_full(hardware.used_memory_gib, total_gib=total_gib)
    node = Node(
        gpu=gpu,
        gpus_per_node=count,
        nodes=_nodes(match, gpu=gpu, hardware=hardware),
        interconnect=interconnect,
        total_memory_gib=total_gib,
        used_memory_gib=hardware.used_memory_gib,
        host_memory_gib=host_memory_gib,
        price_per_gpu_hour=hardware.price_per_gpu_hour,
    )
    findings = (name_finding, link_finding, _memory_finding(gpu, total_gib=total_gib))
    return node, tuple(finding for finding in findings if finding is not None)


def find_gpu(name: str) -> Gpu:
    """Return the part that `name` means (the commonest when it fits several)."""
    return match_name(name).gpus[0]


def catalogue_name(name: str) -> str:
    """Return the catalogue's spelling of a part, else the name itself: one record, one name."""
    try:
        return find_gpu(name).name
    except UnknownGpu:
        return name


def all_gpus() -> tuple[Gpu, ...]:
    """Return every part of the catalogue, in its order."""
    return tuple(gpus().values())


def gpu_entry(name: str) -> GpuEntry:
    """Return a part's entry (the whole part's for a slice): spellings, and each number's source."""
    return entries()[find_gpu(name).name.split(" MIG ")[0]]


def gpu_aliases(name: str) -> tuple[str, ...]:
    """Return the spellings and instance names that lead to a part, the driver's name first."""
    entry = gpu_entry(name)
    shared = [alias for alias, parts in ambiguous_names().items() if parts[0] == entry.name]
    clouds = [item.name for item in instances() if item.gpu == entry.name]
    return tuple(dict.fromkeys([entry.driver_name, *entry.aliases, *shared, *clouds]))


def _match(hardware: Hardware) -> Match:
    if hardware.spec is None:
        return match_name(hardware.gpu)
    try:
        known = match_name(hardware.gpu)
    except UnknownGpu:
        return Match(gpus=(custom_gpu(hardware.gpu, spec=hardware.spec, known=None),))
    gpu = custom_gpu(hardware.gpu, spec=hardware.spec, known=known.gpus[0])
    return Match(gpus=(gpu,), count=known.count, instance=known.instance)


def _choose(parts: tuple[Gpu, ...], *, hardware: Hardware) -> tuple[Gpu, Finding | None]:
    """Return the commonest part that agrees with what else is stated."""
    kept = [gpu for gpu in parts if _agrees(gpu, hardware=hardware)] or list(parts)
    if len(kept) == 1:
        return kept[0], None
    first, *others = kept
    other_names = ", ".join(gpu.name for gpu in others)
    return first, Finding(
        rule="HW001",
        severity="note",
        message=(
            f"{hardware.gpu!r} fits several parts: {first.name} is assumed as the commonest, "
            f"the others are {other_names}."
        ),
        suggestion=f"Name the part you have, such as {first.name} or {others[0].name}.",
        source=_SOURCE,
    )


def _agrees(gpu: Gpu, *, hardware: Hardware) -> bool:
    kind = _link_kind(gpu)
    if hardware.interconnect == "nvlink" and kind == "none":
        return False
    if hardware.interconnect == "pcie" and kind == "board":
        return False
    stated = hardware.total_memory_gib
    return stated is None or abs(stated - gpu.memory_gib) <= _SAME_MEMORY_TOLERANCE * stated


def _link_kind(gpu: Gpu) -> str:
    if gpu.is_custom:
        return "board" if gpu.link_gb_s else "none"
    if " MIG " in gpu.name:
        return "none"
    return entries()[gpu.name].link_kind


def _gpus_per_node(match: Match, *, gpu: Gpu, hardware: Hardware) -> int:
    stated = hardware.gpus_per_node
    instance = match.instance
    if instance is not None and stated is not None and stated > instance.gpus:
        raise InvalidRequest(
            f"{instance.name} has {instance.gpus} GPUs, so gpus_per_node cannot be {stated}",
            pointer="/hardware/gpus_per_node",
        )
    counted = None if gpu.gpu_class == "integrated" else match.count
    if counted is not None and stated is not None and stated != counted:
        raise InvalidRequest(
            f"{hardware.gpu!r} says {counted} GPUs, but gpus_per_node is {stated}",
            pointer="/hardware/gpus_per_node",
        )
    return stated or counted or (instance.gpus if instance is not None else 1)


def _nodes(match: Match, *, gpu: Gpu, hardware: Hardware) -> int:
    """Return the nodes: `GB10 x2` counts machines, since such a machine has one GPU."""
    if gpu.gpu_class == "integrated" and match.count is not None and hardware.nodes == 1:
        return match.count
    return hardware.nodes


def _interconnect(
    gpu: Gpu, *, count: int, stated: Interconnect | None
) -> tuple[Interconnect, Finding | None]:
    """Return the GPU-to-GPU link within a node; PCIe whenever no better one is there."""
    if count == 1:
        return "none", None
    own_link: Interconnect = "xgmi" if gpu.vendor == "amd" else "nvlink"
    if stated in ("nvlink", "xgmi") and gpu.link_gb_s == 0:
        return "pcie", Finding(
            rule="HW002",
            severity="warning",
            message=f"{gpu.name} has no {stated} link that is known here; PCIe is assumed.",
            suggestion="State hardware.spec.link_gb_s if the GPUs are linked.",
            source=_SOURCE,
        )
    if stated is not None:
        return (own_link if stated in ("nvlink", "xgmi") else "pcie"), None
    return (own_link if _link_kind(gpu) == "board" else "pcie"), None


def _host_memory_gib(instance: Instance | None, *, hardware: Hardware) -> float | None:
    if hardware.host_memory_gib is not None or instance is None:
        return hardware.host_memory_gib
    return instance.host_memory_gib


def _installed_gib(gpu: Gpu, host_memory_gib: float | None) -> float:
    if gpu.vendor == "cpu" and host_memory_gib:
        return host_memory_gib
    return gpu.memory_gib


def _reject_full(used_gib: float, *, total_gib: float) -> None:
    if used_gib >= total_gib:
        raise InvalidRequest(
            f"used_memory_gib is {used_gib}, but the GPU has {total_gib} GiB in all",
            pointer="/hardware/used_memory_gib",
        )


def _memory_finding(gpu: Gpu, *, total_gib: float) -> Finding | None:
    off = abs(total_gib - gpu.memory_gib) > _MEMORY_TOLERANCE * gpu.memory_gib
    if gpu.unified_memory or gpu.is_custom or not off:
        return None
    return Finding(
        rule="HW003",
        severity="warning",
        message=(
            f"The stated {total_gib} GiB per GPU differ by more than 10 % from the "
            f"{gpu.memory_gib} GiB of {gpu.name}; the stated figure is used."
        ),
        suggestion="Check that the GPU's name and total_memory_gib belong together.",
        source=_SOURCE,
    )
