"""How sure a memory figure is, from the residuals of measured start-ups."""

from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory.constants import constant, memory_constants
from service.tuning.memory.plan import GIB
from service.tuning.models.spec import ModelSpec


def available_band_bytes(
    spec: ModelSpec,
    *,
    node: Node,
    version: EngineVersion,
    weights_bytes: float,
    charged_graphs_bytes: float,
) -> float:
    """Return the half width of the 80 % band of the available memory, bytes."""
    figures = memory_constants()["band"]
    if version.is_legacy:
        width = figures["legacy_gib"]
    elif constant("graphs_charged_share", version) > 0:
        width = figures["since_graphs_charged_gib"]
    else:
        width = figures["hopper_gib" if node.gpu.arch == "Hopper" else "other_gib"]
    share = figures["graphs_share_of_mixtures" if spec.is_moe else "graphs_share"]
    band = float(width) * GIB + float(share) * charged_graphs_bytes
    if spec.layout_confidence != "high":
        band += float(figures["unknown_layout_share"]) * weights_bytes
    return band


def is_borderline(max_concurrency: float) -> bool:
    """Whether the predicted concurrency is so near 1 that the verdict is not sure."""
    row = memory_constants()["borderline_concurrency"]
    return bool(row["low"] <= max_concurrency <= row["high"])
