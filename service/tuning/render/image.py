"""Which container image and GPU resource a part needs.

Sources: docs.vllm.ai, Using Docker (vllm/vllm-openai, tags v<release>); vllm/vllm-openai-rocm has
tags v<release> from v0.14.0 on; CPU images as docs.vllm.ai, Using Kubernetes, names them.
"""

from service.tuning.render.rendering import Rendering

_ROCM_SINCE = "0.14.0"


def image(rendering: Rendering) -> str | None:
    """Return the image with the tag of the release; None when there is none to name."""
    tag = f"v{rendering.version.text}"
    match rendering.node.gpu.vendor:
        case "nvidia":
            return f"vllm/vllm-openai:{tag}"
        case "amd" if rendering.version.since(_ROCM_SINCE):
            return f"vllm/vllm-openai-rocm:{tag}"
        case "cpu":
            return f"public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:{tag}"
        case "other" if rendering.node.gpu.compute_capability is not None:
            return f"vllm/vllm-openai:{tag}"
        case _:
            return None


def gpu_resource(rendering: Rendering) -> str | None:
    """Return the name under which Kubernetes counts the GPUs; None on a CPU."""
    match rendering.node.gpu.vendor:
        case "amd":
            return "amd.com/gpu"
        case "cpu":
            return None
        case _:
            return "nvidia.com/gpu"


def why_not_in_a_container(rendering: Rendering) -> str | None:
    """Return why no container files can be rendered; None when they can."""
    if rendering.nodes_per_replica > 1:
        return (
            f"one server spans {rendering.nodes_per_replica} nodes"
            f" ({rendering.gpus_per_replica} GPUs): start serve.sh on each of them; a single"
            " compose service, Deployment or InferenceService cannot hold it"
        )
    if image(rendering) is None:
        return (
            f"no published image of vLLM {rendering.version.text} for {rendering.node.gpu.name}"
            " is known"
        )
    return None
