"""How sure a memory figure is, from the residuals of measured start-ups."""

from api_schemas.base import Json
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory.constants import memory_constants
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import ModelSpec


def available_band_bytes(
    spec: ModelSpec,
    *,
    node: Node,
    version: EngineVersion,
    weights_bytes: float,
    charged_graphs_bytes: float,
    is_data_parallel: bool,
) -> float:
    """Return the half width of the 80 % band of the available memory, bytes."""
    figures = memory_constants()["band"]
    if version.is_legacy:
        width = figures["legacy_gib"]
    elif version.since(memory_constants()["graph_estimate"]["charged_since"]):
        width = figures["since_graphs_charged_gib"]
    else:
        width = figures["hopper_gib" if node.gpu.arch == "Hopper" else "other_gib"]
    share = _graphs_share(figures, is_moe=spec.is_moe, is_data_parallel=is_data_parallel)
    band = float(width) * GIB + share * charged_graphs_bytes
    if node.gpu.unified_memory:
        band += float(figures["unified_memory_share"]) * node.total_memory_gib * GIB
    if spec.layout_confidence != "high":
        band += float(figures["unknown_layout_share"]) * weights_bytes
    return band


def _graphs_share(figures: dict[str, Json], *, is_moe: bool, is_data_parallel: bool) -> float:
    if not is_moe:
        return float(figures["graphs_share"])
    if is_data_parallel:
        return float(figures["graphs_share_of_data_parallel_mixtures"])
    return float(figures["graphs_share_of_mixtures"])


def is_borderline(max_concurrency: float) -> bool:
    """Whether the predicted concurrency is so near 1 that the verdict is not sure."""
    row = memory_constants()["borderline_concurrency"]
    return bool(row["low"] <= max_concurrency <= row["high"])
