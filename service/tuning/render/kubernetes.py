"""deployment.yaml: a Deployment and its Service."""

from api_schemas.base import Json
from api_schemas.recommendation import RenderedFile
from service.tuning.render.pod import UPDATE_STRATEGY, container, volumes
from service.tuning.render.rendering import Rendering
from service.tuning.render.text import dump_yaml, header


def deployment(rendering: Rendering) -> RenderedFile:
    """Return deployment.yaml with as many replicas as the load needs."""
    notes = [
        *header(rendering),
        "Gated models: kubectl create secret generic vllm-secrets --from-literal=HF_TOKEN=...",
        "The weights' cache is an emptyDir; put a volume claim there to keep it over restarts.",
    ]
    return RenderedFile(
        path="deployment.yaml",
        media_type="application/yaml",
        content=dump_yaml(_deployment(rendering), _service(rendering), notes=notes),
    )


def _labels(rendering: Rendering) -> dict[str, str]:
    return {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": rendering.name}


def _deployment(rendering: Rendering) -> dict[str, Json]:
    labels = _labels(rendering)
    scrape = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(rendering.port),
        "prometheus.io/path": "/metrics",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": rendering.name, "labels": labels},
        "spec": {
            "replicas": rendering.replicas,
            "selector": {"matchLabels": labels},
            "strategy": UPDATE_STRATEGY,
            "template": {
                "metadata": {"labels": labels, "annotations": scrape},
                "spec": {
                    "terminationGracePeriodSeconds": 60,
                    # Service links would set VLLM_... variables, some of which vLLM reads itself.
                    "enableServiceLinks": False,
                    "containers": [container(rendering, name="vllm")],
                    "volumes": volumes(rendering),
                },
            },
        },
    }


def _service(rendering: Rendering) -> dict[str, Json]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": rendering.name, "labels": _labels(rendering)},
        "spec": {
            "selector": _labels(rendering),
            "ports": [{"name": "http", "port": 80, "targetPort": rendering.port}],
        },
    }
