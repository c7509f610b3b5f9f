"""How long a server may take until it answers, for probes and health checks."""

import math

from service.tuning.render.rendering import Rendering

_SLOW_DOWNLOAD_GIB_PER_S = 0.1
"""About 100 MB/s from the hub: a cautious figure of ours."""
_LOAD_AND_COMPILE_S = 600
"""Loading, compiling and capturing graphs; vLLM itself waits this long for its engine
(VLLM_ENGINE_READY_TIMEOUT_S of vllm 0.33.0 envs.py)."""
_UNKNOWN_WEIGHTS_GIB = 150.0


def checkpoint_gib(rendering: Rendering) -> float | None:
    """Return about how much one download is, GiB; None when no estimate came along."""
    if rendering.estimate is None or rendering.estimate.memory is None:
        return None
    config = rendering.config
    shards = (config.tensor_parallel_size or 1) * (config.pipeline_parallel_size or 1)
    return rendering.estimate.memory.weights_gib * shards


def start_up_limit_s(rendering: Rendering) -> int:
    """Return the seconds after which a server that does not answer has failed."""
    weights = checkpoint_gib(rendering)
    download_s = (_UNKNOWN_WEIGHTS_GIB if weights is None else weights) / _SLOW_DOWNLOAD_GIB_PER_S
    return 60 * math.ceil((download_s + _LOAD_AND_COMPILE_S) / 60)
