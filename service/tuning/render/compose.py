"""compose.yaml: one server under Docker Compose.

Key names from docs.docker.com: Compose GPU support (deploy.resources.reservations.devices with
driver, count, capabilities) and the Compose file reference (healthcheck, ipc, volumes); `ipc: host`
as docs.vllm.ai, Using Docker, asks for.
"""

from api_schemas.base import Json
from api_schemas.recommendation import RenderedFile
from service.tuning.render.image import image
from service.tuning.render.rendering import DEFAULT_PORT, Rendering
from service.tuning.render.start_up import start_up_limit_s
from service.tuning.render.text import dump_yaml, header

_HEALTH = "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/health', timeout=4)"


def compose(rendering: Rendering) -> RenderedFile:
    """Return compose.yaml with one service; replicas need one host each."""
    document = {
        "services": {"vllm": _service(rendering)},
        "volumes": {"huggingface-cache": {}},
    }
    notes = [*header(rendering), "Gated models: export HF_TOKEN before docker compose up."]
    if rendering.replicas > 1:
        notes.append(f"One of {rendering.replicas} replicas: start it on each host.")
    return RenderedFile(
        path="compose.yaml",
        media_type="application/yaml",
        content=dump_yaml(document, notes=notes),
    )


def _service(rendering: Rendering) -> dict[str, Json]:
    environment = {name: _literal(value) for name, value in rendering.plain_env.items()}
    # Without a value Compose hands the host's variable on, or none.
    secrets = dict.fromkeys(rendering.secret_names)
    return {
        "image": image(rendering),
        "entrypoint": ["vllm"],
        "command": [_literal(argument) for argument in rendering.argv[1:]],
        "environment": environment | secrets,
        "ports": [f"{DEFAULT_PORT}:{rendering.port}"],
        "volumes": ["huggingface-cache:/root/.cache/huggingface"],
        "ipc": "host",
        **_accelerators(rendering),
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _HEALTH.format(port=rendering.port)],
            "interval": "10s",
            "timeout": "5s",
            "retries": 6,
            "start_period": f"{start_up_limit_s(rendering)}s",
        },
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
    }


def _accelerators(rendering: Rendering) -> dict[str, Json]:
    """Return the GPUs: a reservation for NVIDIA, the device files for ROCm."""
    match rendering.node.gpu.vendor:
        case "cpu":
            return {}
        case "amd":
            # docs.vllm.ai, installation with ROCm; HIP_VISIBLE_DEVICES picks among the GPUs.
            return {
                "devices": ["/dev/kfd", "/dev/dri"],
                "group_add": ["video"],
                "cap_add": ["SYS_PTRACE"],
                "security_opt": ["seccomp:unconfined"],
            }
        case _:
            device = {
                "driver": "nvidia",
                "count": rendering.gpus_per_replica,
                "capabilities": ["gpu"],
            }
            return {"deploy": {"resources": {"reservations": {"devices": [device]}}}}


def _literal(text: str) -> str:
    """Return text that Compose does not interpolate."""
    return text.replace("$", "$$")
