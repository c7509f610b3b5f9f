"""How much of the GPU vLLM may take: `gpu_memory_utilization`."""

import math
from typing import Literal

import msgspec

from api_schemas.recommendation import Posture
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node

LARGEST = 0.95
"""Above it a start fails on the smallest disturbance; all three guides call it risky."""
GRAPHS_INSIDE_SINCE = "0.20.0"
"""From this release the CUDA graphs are inside the fraction: vllm v1/worker/gpu_worker.py."""
OTHERS_OUTSIDE_SINCE = "0.9.1"
"""From this release memory of other processes is not charged to the fraction."""
CONTEXT_GIB = 0.5
"""CUDA context and communication buffers, taken before vLLM measures free memory."""

Limit = Literal["posture", "graphs_outside", "other_users", "unified_memory", "display", "context"]

_BASE = {
    ("production", True): 0.92,
    ("production", False): 0.90,
    ("aggressive", True): LARGEST,
    ("aggressive", False): 0.93,
}
"""By posture and whether the graphs are inside; 0.92 and 0.90 are vLLM's own defaults."""
_DISPLAY = {"production": 0.90, "aggressive": 0.94}
"""Consumer and workstation cards also drive a desktop or its driver (WSL2 24 GB: 0.94 at most)."""
_UNIFIED = {"production": 0.80, "aggressive": 0.83}
"""The operating system lives in the same memory: 0.83 was the most that held on GB10."""
_SMALL_UNIFIED = 0.60
_SMALL_UNIFIED_GIB = 32.0
"""Jetson class boards: 0.6 of 16 GB was the most that held."""
_SYSTEM_GIB = 20.0
"""What a system with a serving process on it uses on such boards."""
_SPARE_GIB = {"production": 1.0, "aggressive": 0.5}
"""Kept free beside what others hold, so that a start does not depend on their last megabyte."""


class UtilizationChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The fraction and what limited it."""

    value: float
    limited_by: Limit
    limits: dict[str, float]
    """Every limit that applied, by name."""


def choose_utilization(
    node: Node, *, version: EngineVersion, posture: Posture
) -> UtilizationChoice:
    """Return the largest fraction that posture, release and other users of the GPU allow."""
    inside = version.since(GRAPHS_INSIDE_SINCE)
    limits: dict[Limit, float] = {
        "posture" if inside else "graphs_outside": _BASE[posture, inside],
        "context": 1 - (CONTEXT_GIB + _charged_to_others(node, version)) / node.total_memory_gib,
    }
    if node.gpu.gpu_class in ("consumer", "workstation"):
        limits["display"] = _DISPLAY[posture]
    if node.gpu.unified_memory:
        limits["unified_memory"] = _unified_limit(node.total_memory_gib, posture)
    if _charged_to_others(node, version) > 0:
        free_gib = node.total_memory_gib - node.used_memory_gib - _SPARE_GIB[posture]
        limits["other_users"] = free_gib / node.total_memory_gib
    limited_by = min(limits, key=lambda name: limits[name])
    return UtilizationChoice(
        value=_floor(min(limits[limited_by], LARGEST)),
        limited_by=limited_by,
        limits={str(name): round(value, 4) for name, value in limits.items()},
    )


def _unified_limit(total_gib: float, posture: Posture) -> float:
    """Return the share that leaves the operating system what it needs."""
    if total_gib < _SMALL_UNIFIED_GIB:
        return _SMALL_UNIFIED
    return max(_SMALL_UNIFIED, min(_UNIFIED[posture], 1 - _SYSTEM_GIB / total_gib))


def _charged_to_others(node: Node, version: EngineVersion) -> float:
    """Return the memory that others hold outside the fraction, GiB."""
    return node.used_memory_gib if version.since(OTHERS_OUTSIDE_SINCE) else 0.0


def _floor(value: float) -> float:
    return max(0.0, math.floor(value * 100 + 1e-9) / 100)
