"""values.yaml for the Helm chart of vLLM's production stack.

Read from the chart (vllm-project/production-stack, helm/values.yaml, values.schema.json and
templates): it writes host and port itself; it switches prefix caching off unless
`enablePrefixCaching` is true; it mounts /dev/shm only when `tensorParallelSize` is set; it doubles
the pods during an update unless a strategy is given; numbers must be numbers; whatever it has no
key for goes into `extraArgs`, as texts.
"""

import math

from msgspec.structs import replace

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.recommendation import RenderedFile
from service.tuning.engine.argv import settings_argv
from service.tuning.render.image import gpu_resource, image
from service.tuning.render.pod import (
    UPDATE_STRATEGY,
    cpus,
    environment,
    host_memory_gib,
    probes,
    shm_gib,
)
from service.tuning.render.rendering import Rendering
from service.tuning.render.start_up import checkpoint_gib
from service.tuning.render.text import dump_yaml, header

_CHART_KEYS = {
    "enable_chunked_prefill": "enableChunkedPrefill",
    "dtype": "dtype",
    "tensor_parallel_size": "tensorParallelSize",
    "max_num_seqs": "maxNumSeqs",
    "max_model_len": "maxModelLen",
}
_LARGEST_PLAIN_NUMBER = 999_999
"""Helm reads numbers as floats and would print larger ones with an exponent."""
_CACHE_HEADROOM = 1.2


def values(rendering: Rendering) -> RenderedFile:
    """Return values.yaml with one entry in `modelSpec`."""
    document = {
        "servingEngineSpec": {
            "containerPort": rendering.port,
            "servicePort": 80,
            # The chart's default class exists on NVIDIA nodes only.
            "runtimeClassName": "nvidia" if gpu_resource(rendering) == "nvidia.com/gpu" else "",
            "strategy": UPDATE_STRATEGY,
            **probes(rendering),
            "modelSpec": [_model(rendering)],
        }
    }
    notes = [*header(rendering), "helm install vllm vllm/vllm-stack -f values.yaml"]
    return RenderedFile(
        path="values.yaml", media_type="application/yaml", content=dump_yaml(document, notes=notes)
    )


def _model(rendering: Rendering) -> dict[str, Json]:
    repository, _, tag = (image(rendering) or "").rpartition(":")
    resource = gpu_resource(rendering)
    model: dict[str, Json] = {
        "name": rendering.name,
        "repository": repository,
        "tag": tag,
        "modelURL": rendering.argv[2],
        "replicaCount": rendering.replicas,
        "requestCPU": cpus(rendering),
        "requestMemory": f"{host_memory_gib(rendering)}Gi",
        "requestGPU": rendering.gpus_per_replica if resource else 0,
    }
    if resource == "amd.com/gpu":
        model["requestGPUType"] = resource
    weights = checkpoint_gib(rendering)
    if weights is not None and rendering.replicas == 1:
        model["pvcStorage"] = f"{math.ceil(_CACHE_HEADROOM * weights) + 10}Gi"
    return model | {
        "shmSize": f"{shm_gib(rendering)}Gi",
        "env": environment(rendering),
        "vllmConfig": _vllm_config(rendering),
    }


def _vllm_config(rendering: Rendering) -> dict[str, Json]:
    settings = rendering.settings
    keyed = {n: key for n, key in _CHART_KEYS.items() if _fits(n, getattr(settings, n))}
    config: dict[str, Json] = {"enablePrefixCaching": _prefix_caching(rendering)}
    config |= {key: getattr(settings, name) for name, key in keyed.items()}
    config.setdefault("tensorParallelSize", 1)
    rest = replace(
        settings, **dict.fromkeys([*keyed, "enable_prefix_caching", "host", "port"], None)
    )
    return config | {"extraArgs": settings_argv(rest, rendering.version)}


def _fits(name: str, value: Json) -> bool:
    """Whether the chart takes the value and prints it as it is."""
    if name == "dtype":
        return value is not None
    return isinstance(value, int) and abs(value) <= _LARGEST_PLAIN_NUMBER


def _prefix_caching(rendering: Rendering) -> bool:
    """Return whether prefixes stay cached; the chart says no unless it is told."""
    given = _first(rendering.settings, rendering.effective)
    return not rendering.version.is_legacy if given is None else given


def _first(*configs: EngineConfig | None) -> bool | None:
    found = [c.enable_prefix_caching for c in configs if c is not None]
    return next((value for value in found if value is not None), None)
