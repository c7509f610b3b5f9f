"""What the container around an engine lacks: shared memory, GPUs, a fixed image."""

import re
from collections.abc import Iterator

from api_schemas.explanation import Finding
from service.tuning.lint.container import image_version, is_server_image
from service.tuning.lint.found import Container, FoundEngine, Remark
from service.tuning.lint.interpret import Interpreted
from service.tuning.rules.base import positive_int

_LEAST_SHM_GIB = 1.0
"""Far below what any set of ranks was seen to work with; docs.vllm.ai gives 2 GiB to one GPU."""
_PARALLEL = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "prefill_context_parallel_size",
)
_STACK = "production-stack model"
_ELASTIC_TAG = re.compile(r":(?:latest|nightly)(?:@|$)")
_GPUS_PER_SHM = {
    "compose service": "ipc: host",
    "docker run": "--ipc=host",
}


def surroundings(engine: FoundEngine, read: Interpreted) -> Iterator[Remark]:
    """Yield what does not suit the engine around it."""
    container = engine.container
    if container is None:
        return
    yield from _image(container)
    if any(name in read.unresolved for name in _PARALLEL):
        return
    ranks = local_ranks(read)
    if ranks is None:
        return
    yield from _shared_memory(container, ranks, read)
    yield from _gpus(container, ranks, read)


def is_said_for_the_chart(finding: Finding, engine: FoundEngine) -> bool:
    """Whether a note calls needless what the chart needs to be told.

    The production stack switches prefix caching off unless `enablePrefixCaching` is true (its
    templates/deployment-vllm-multi.yaml).
    """
    is_of_chart = engine.container is not None and engine.container.kind == _STACK
    return is_of_chart and finding.rule == "KVC017"


def local_ranks(read: Interpreted) -> int | None:
    """Return the ranks that run inside one container; None where nodes or Ray share them."""
    config = read.config
    if (config.nnodes or 1) != 1 or config.distributed_executor_backend == "ray":
        return None
    if config.data_parallel_backend == "ray" or config.headless:
        return None
    replica = 1
    for name in _PARALLEL:
        size = positive_int(getattr(config, name)) or 1
        if name == "data_parallel_size":
            size = positive_int(config.data_parallel_size_local) or size
        replica *= size
    return replica


def _shared_memory(container: Container, ranks: int, read: Interpreted) -> Iterator[Remark]:
    if ranks < 2 or container.shm_gib is None or container.shm_gib >= _LEAST_SHM_GIB:  # noqa: PLR2004
        return
    advice = _GPUS_PER_SHM.get(
        container.kind,
        "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: "
        f"{2 * ranks}Gi}}}}] with a mount at /dev/shm",
    )
    yield Remark(
        rule="CTR001",
        message=(
            f"{ranks} ranks share /dev/shm of {container.shm_gib * 1024:.0f} MiB in this"
            f" {container.kind}: communication fails or hangs once buffers are larger."
        ),
        suggestion=f"Add {advice}.",
        setting="tensor_parallel_size",
        span=read.places.get("tensor_parallel_size", container.span),
    )


def _gpus(container: Container, ranks: int, read: Interpreted) -> Iterator[Remark]:
    gpus = container.gpus
    if gpus is None or gpus < 1:
        return
    span = container.gpus_span or container.span
    if gpus < ranks:
        yield Remark(
            rule="CTR002",
            message=f"The settings need {ranks} GPUs, but the container gets {gpus:g}.",
            suggestion=f"Give it {ranks} GPUs, or lower tensor_parallel_size.",
            setting="tensor_parallel_size",
            span=span,
        )
    elif gpus > ranks and not read.unresolved:
        yield Remark(
            rule="CTR003",
            message=f"The container holds {gpus:g} GPUs, but the settings use {ranks}.",
            suggestion=f"Set tensor_parallel_size or data_parallel_size to {gpus:g}, or give it"
            f" {ranks}.",
            setting="tensor_parallel_size",
            span=span,
        )


def _image(container: Container) -> Iterator[Remark]:
    image = container.image
    if image is None or not is_server_image(image) or image_version(image) is not None:
        return
    last = image.rsplit("/", 1)[-1]
    if _ELASTIC_TAG.search(image) or ":" not in last:
        yield Remark(
            rule="CTR007",
            message=f"{image} has no fixed release: the next pull may bring another vLLM.",
            suggestion="Pin a release, such as vllm/vllm-openai:v0.33.0.",
            span=container.span,
        )
