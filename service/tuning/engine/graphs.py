"""CUDA-graph capture sizes per release: the grid that decode batches are padded to."""

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.platform import (
    is_cpu,
    is_datacenter_blackwell,
    speculative_tokens,
)
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node

_CAP = 512
"""Since 0.8.0: vllm config of 0.8.0 to 0.33.0."""
_BLACKWELL_CAP = 1024
"""Compute capability 10.x from 0.28.0: vllm config/vllm.py."""
_COUNTS_DRAFTS_SINCE = "0.17.0"
"""From here on, at the latest, drafted tokens widen the default: a config/vllm.py from before 0.17
does so, and start-up logs of 0.20 to 0.25 capture up to 8, 16 and 24 tokens for 1 sequence with 3
drafts, 2 with 3 and 2 with 5."""
_FINE_STEP = 8
_COARSE_STEP = 16
_COARSE_FROM = 256
_INTERACTIVE_MAX = 32
_LARGEST_LISTED = 65_536
"""No server captures batches this large; the list must stay finite whatever is asked."""


def capture_sizes(config: EngineConfig, *, node: Node, version: EngineVersion) -> tuple[int, ...]:
    """Return the batch sizes that are captured, ascending, in tokens; none on a CPU.

    Batch limits must be filled in already. Follows `_set_cudagraph_sizes` of vllm 0.33.0
    config/vllm.py and its predecessors.
    """
    tokens = config.max_num_batched_tokens or 0
    if is_cpu(node.gpu) or _captures_nothing(config):
        return ()
    if explicit := _explicit_sizes(config):
        return tuple(sorted({size for size in explicit if 0 < size <= tokens}))
    maximum = _explicit_maximum(config)
    if maximum is not None:
        return _sizes_up_to(min(maximum, tokens), config=config, version=version)
    cap = _BLACKWELL_CAP if is_datacenter_blackwell(node.gpu) else _CAP
    return _default_sizes(config, cap=cap, version=version)


def _default_sizes(config: EngineConfig, *, cap: int, version: EngineVersion) -> tuple[int, ...]:
    """Return the sizes that are captured when nothing about them is stated."""
    tokens = config.max_num_batched_tokens or 0
    ceiling = _ceiling(config, cap=cap, version=version)
    sizes = set(_sizes_up_to(min(ceiling, tokens), config=config, version=version))
    if version.since("0.28.0"):
        batches = _whole_decode_batches(config, cap=cap, ceiling=ceiling)
        sizes |= {size for size in batches if size <= tokens}
    return tuple(sorted(sizes))


def _sizes_up_to(maximum: int, *, config: EngineConfig, version: EngineVersion) -> tuple[int, ...]:
    """Return the grid, and from 0.28.0 the whole token budget where it is that small."""
    tokens = config.max_num_batched_tokens or 0
    sizes = set(_grid(maximum, config=config, version=version))
    if version.since("0.28.0") and 0 < tokens <= maximum:
        sizes.add(tokens)
    return tuple(sorted(sizes))


def _grid(maximum: int, *, config: EngineConfig, version: EngineVersion) -> list[int]:
    """Return 1, 2, 4, then steps of 8, from 0.11.1 steps of 16 above 256."""
    maximum = min(maximum, _LARGEST_LISTED)
    is_fine = config.performance_mode == "interactivity" and version.since("0.17.0")
    start = (
        list(range(1, min(maximum, _INTERACTIVE_MAX) + 1))
        if is_fine
        else [size for size in (1, 2, 4) if size <= maximum]
    )
    if not version.since("0.11.1"):
        return start + list(range(_FINE_STEP, maximum + 1, _FINE_STEP))
    fine = range(_FINE_STEP, min(maximum + 1, _COARSE_FROM), _FINE_STEP)
    return start + list(fine) + list(range(_COARSE_FROM, maximum + 1, _COARSE_STEP))


def _whole_decode_batches(config: EngineConfig, *, cap: int, ceiling: int) -> set[int]:
    """Return the sizes of full decode batches, which 0.28.0 and later add to a default grid."""
    requests = config.max_num_seqs or 0
    query_len = 1 + speculative_tokens(config)
    counts = [requests] if query_len == 1 else _request_counts(min(requests, cap))
    return {count * query_len for count in counts if 0 < count * query_len <= ceiling}


def _request_counts(most: int) -> list[int]:
    fine = range(_FINE_STEP, min(most + 1, _COARSE_FROM), _FINE_STEP)
    coarse = range(_COARSE_FROM, most + 1, _COARSE_STEP)
    return [*(n for n in (1, 2, 4) if n <= most), *fine, *coarse, most]


def _ceiling(config: EngineConfig, *, cap: int, version: EngineVersion) -> int:
    """Return the default maximum before the token budget limits it."""
    requests = config.max_num_seqs or 0
    if version.is_legacy:
        return -(-requests // _FINE_STEP) * _FINE_STEP
    if not version.since("0.10.0"):
        return _CAP
    if not version.since(_COUNTS_DRAFTS_SINCE):
        return min(2 * requests, _CAP)
    limit = cap if version.since("0.28.0") else _CAP
    return min(2 * requests * (1 + speculative_tokens(config)), limit)


def _captures_nothing(config: EngineConfig) -> bool:
    mode = _compilation(config).get("cudagraph_mode")
    is_off = isinstance(mode, str) and mode.upper() == "NONE"
    return bool(config.enforce_eager) or is_off or config.optimization_level in {0, "0"}


def _explicit_sizes(config: EngineConfig) -> list[int]:
    sizes = config.cudagraph_capture_sizes or _compilation(config).get("cudagraph_capture_sizes")
    if not sizes and isinstance(config.cuda_graph_sizes, list) and len(config.cuda_graph_sizes) > 1:
        sizes = config.cuda_graph_sizes
    if not isinstance(sizes, list):
        return []
    return [size for size in sizes if isinstance(size, int)]


def _explicit_maximum(config: EngineConfig) -> int | None:
    if config.max_cudagraph_capture_size is not None:
        return config.max_cudagraph_capture_size
    nested = _compilation(config).get("max_cudagraph_capture_size")
    if isinstance(nested, int):
        return nested
    single = config.cuda_graph_sizes
    if isinstance(single, list) and len(single) == 1 and isinstance(single[0], int):
        return single[0]
    return None


def _compilation(config: EngineConfig) -> dict[str, Json]:
    return config.compilation_config if isinstance(config.compilation_config, dict) else {}
