"""The pod that runs one server, for Deployments and InferenceServices alike.

Shapes follow docs.vllm.ai, Using Kubernetes: memory-backed /dev/shm, GPU limits, probes on /health.
"""

from api_schemas.base import Json
from service.tuning.render.image import gpu_resource, image
from service.tuning.render.rendering import Rendering
from service.tuning.render.start_up import start_up_limit_s

_SHM_GIB_PER_GPU = 2
"""docs.vllm.ai, Using Kubernetes, gives 2Gi to a server on one GPU."""
_CPUS_BESIDE_GPUS = 2
"""One process for the API server, one for the engine core, one more per GPU."""
_HOST_MEMORY_GIB = 16
"""The production-stack chart's own example for one server."""
_PROBE_PERIOD_S = 10
UPDATE_STRATEGY: dict[str, Json] = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
}
"""One pod after the other: a surge pod would wait for GPUs that the old pod still holds."""


def container(rendering: Rendering, *, name: str) -> dict[str, Json]:
    """Return the container of one server."""
    argv = [_literal(argument) for argument in rendering.argv]
    return {
        "name": name,
        "image": image(rendering),
        "command": argv[:3],
        "args": argv[3:],
        "env": environment(rendering),
        "ports": [{"containerPort": rendering.port, "protocol": "TCP"}],
        "resources": resources(rendering),
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": "huggingface-cache", "mountPath": "/root/.cache/huggingface"},
        ],
        **probes(rendering),
    }


def volumes(rendering: Rendering) -> list[dict[str, Json]]:
    """Return shared memory for the ranks, and a place for the weights."""
    size = f"{shm_gib(rendering)}Gi"
    return [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        {"name": "huggingface-cache", "emptyDir": {}},
    ]


def environment(rendering: Rendering) -> list[dict[str, Json]]:
    """Return plain variables as values, secrets as optional references."""
    plain = [{"name": n, "value": _literal(v)} for n, v in rendering.plain_env.items()]
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": secret_reference(name)}}
        for name in rendering.secret_names
    ]
    return [*plain, *secret]


def secret_reference(name: str) -> dict[str, Json]:
    """Return the secret a variable comes from; a missing one is no error."""
    return {"name": "vllm-secrets", "key": name, "optional": True}


def resources(rendering: Rendering) -> dict[str, Json]:
    """Return what the scheduler must find free."""
    requests: dict[str, Json] = {
        "cpu": str(cpus(rendering)),
        "memory": f"{host_memory_gib(rendering)}Gi",
    }
    resource = gpu_resource(rendering)
    if resource is None:
        return {"requests": requests}
    gpus = str(rendering.gpus_per_replica)
    return {"requests": requests | {resource: gpus}, "limits": {resource: gpus}}


def cpus(rendering: Rendering) -> int:
    """Return the CPU cores that one server needs at least."""
    return _CPUS_BESIDE_GPUS + rendering.gpus_per_replica


def host_memory_gib(rendering: Rendering) -> int:
    """Return host memory for one server: its processes and what it offloads there."""
    config = rendering.config
    offloaded = (config.kv_offloading_size or 0) + rendering.gpus_per_replica * (
        (config.cpu_offload_gb or 0) + (config.swap_space or 0)
    )
    return _HOST_MEMORY_GIB + round(offloaded + 0.5 if offloaded else 0)


def shm_gib(rendering: Rendering) -> int:
    """Return the size of /dev/shm, GiB."""
    return _SHM_GIB_PER_GPU * rendering.gpus_per_replica


def probes(rendering: Rendering) -> dict[str, Json]:
    """Return probes that give a large model time to load, and then react within a minute."""
    check = {"httpGet": {"path": "/health", "port": rendering.port}}
    starts = start_up_limit_s(rendering) // _PROBE_PERIOD_S
    return {
        "startupProbe": {**check, "periodSeconds": _PROBE_PERIOD_S, "failureThreshold": starts},
        "readinessProbe": {**check, "periodSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {
            **check,
            "periodSeconds": _PROBE_PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
    }


def _literal(text: str) -> str:
    """Return text in which Kubernetes expands no $(NAME)."""
    return text.replace("$(", "$$(")
