"""inference-service.yaml: the server as a KServe predictor with its own container.

Key names from KServe's v1beta1 API and its custom-predictor guide: the container is called
kserve-container. The annotation value RawDeployment is what releases before 0.16 know; 0.16 and
later take it for Standard (kserve pkg/constants/constants.go).
"""

from api_schemas.recommendation import RenderedFile
from service.tuning.render.pod import container, volumes
from service.tuning.render.rendering import Rendering
from service.tuning.render.text import dump_yaml, header


def inference_service(rendering: Rendering) -> RenderedFile:
    """Return inference-service.yaml with a fixed number of replicas."""
    predictor = {
        "minReplicas": rendering.replicas,
        "maxReplicas": rendering.replicas,
        "terminationGracePeriodSeconds": 60,
        "containers": [container(rendering, name="kserve-container")],
        "volumes": volumes(rendering),
    }
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": rendering.name,
            "annotations": {
                "serving.kserve.io/deploymentMode": "RawDeployment",
            },
        },
        "spec": {"predictor": predictor},
    }
    return RenderedFile(
        path="inference-service.yaml",
        media_type="application/yaml",
        content=dump_yaml(document, notes=header(rendering)),
    )
