"""Kubernetes: the pods of Deployments, StatefulSets, LeaderWorkerSets, Jobs, KServe and others."""

from collections.abc import Iterator

from service.tuning.lint.container import ContainerCommand, read_container, shm_gib_of
from service.tuning.lint.found import Container, FoundEngine, Reading, Remark
from service.tuning.lint.manifest_words import number, variables, words_of
from service.tuning.lint.text import Span
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, find_text, items

_POD_PATHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Pod": (("spec",),),
    "Deployment": (("spec", "template", "spec"),),
    "StatefulSet": (("spec", "template", "spec"),),
    "DaemonSet": (("spec", "template", "spec"),),
    "ReplicaSet": (("spec", "template", "spec"),),
    "Job": (("spec", "template", "spec"),),
    "CronJob": (("spec", "jobTemplate", "spec", "template", "spec"),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
        ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    ),
    "Rollout": (("spec", "template", "spec"),),
    "InferenceService": (("spec", "predictor"),),
    "ServingRuntime": (("spec",),),
    "ClusterServingRuntime": (("spec",),),
    "Workspace": (("inference", "template", "spec"),),
    "RayCluster": (("spec", "headGroupSpec", "template", "spec"),),
}
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915")
_SHM = "/dev/shm"  # noqa: S108  # a mount point, no temporary file
_DEFAULT_SHM_GIB = 64 / 1024
"""What container runtimes give when nothing is said: 64 MiB."""


def kind_of(document: Node) -> str | None:
    """Return the kind of a Kubernetes object; None when it is something else."""
    if find_text(document, "apiVersion") is None:
        return None
    return find_text(document, "kind")


def has_pods(kind: str) -> bool:
    """Whether objects of the kind hold pods that are read here."""
    return kind in _POD_PATHS


def read_object(document: Node, content: str) -> Reading:
    """Return the engines in one object's pods."""
    kind = kind_of(document) or ""
    name = find_text(document, "metadata", "name") or ""
    engines: list[FoundEngine] = []
    for path in _POD_PATHS.get(kind, ()):
        pod = find(document, *path)
        if isinstance(pod, Mapping):
            engines += read_pod(pod, content, title=f"{kind} {name}".strip(), kind=kind)
    return Reading(engines=tuple(engines))


def read_pod(pod: Mapping, content: str, *, title: str, kind: str) -> Iterator[FoundEngine]:
    """Yield the engines in a pod's containers."""
    for node in items(pod, "containers"):
        if isinstance(node, Mapping):
            name = find_text(node, "name")
            shown = f"{title}, container {name}" if name else title
            reading = read_container(_command(node, pod, content, title=shown, kind=kind))
            yield from reading.engines


def _command(
    node: Mapping, pod: Mapping, content: str, *, title: str, kind: str
) -> ContainerCommand:
    image = find(node, "image")
    gpus, gpus_span = gpu_request(node)
    text = image.text.value if isinstance(image, Scalar) else None
    return ContainerCommand(
        title=title,
        form="items",
        span=node.span,
        image=text,
        entrypoint=words_of(find(node, "command"), content),
        arguments=words_of(find(node, "args"), content) or (),
        env=variables(find(node, "env"), content),
        dialect="kubernetes",
        container=Container(
            kind=kind,
            image=text,
            shm_gib=_shm_gib(node, pod),
            gpus=gpus,
            span=node.span,
            gpus_span=gpus_span,
        ),
        remarks=tuple(_probe_remarks(node)),
    )


def gpu_request(node: Node) -> tuple[float | None, Span | None]:
    """Return the GPUs that a container may use, and where that stands."""
    for side in ("limits", "requests"):
        for resource in GPU_RESOURCES:
            found = find(node, "resources", side, resource)
            count = number(found)
            if count is not None and found is not None:
                return count, found.span
    return None, None


def _shm_gib(node: Mapping, pod: Mapping) -> float | None:
    """Return the size of /dev/shm; None where it cannot be told."""
    if find_text(pod, "hostIPC") == "true":
        return float("inf")
    for mount in items(node, "volumeMounts"):
        if (find_text(mount, "mountPath") or "").rstrip("/") == _SHM:
            return _volume_gib(pod, find_text(mount, "name"))
    return _DEFAULT_SHM_GIB


def _volume_gib(pod: Mapping, name: str | None) -> float | None:
    for volume in items(pod, "volumes"):
        if find_text(volume, "name") != name:
            continue
        empty = find(volume, "emptyDir")
        if empty is None:
            return float("inf")
        if find_text(empty, "medium") != "Memory":
            # A folder on disk: of any size, only slow.
            return float("inf")
        size = find_text(empty, "sizeLimit")
        return float("inf") if size is None else shm_gib_of(size)
    return None


def _probe_remarks(node: Mapping) -> Iterator[Remark]:
    liveness = find(node, "livenessProbe")
    if liveness is None or find(node, "startupProbe") is not None:
        return
    delay = number(find(liveness, "initialDelaySeconds")) or 0.0
    period = number(find(liveness, "periodSeconds")) or 10.0
    failures = number(find(liveness, "failureThreshold")) or 3.0
    yield Remark(
        rule="CTR005",
        message=(
            "Without a startupProbe the livenessProbe kills the server"
            f" {delay + period * failures:g} s after the start, loaded or not."
        ),
        suggestion="Add a startupProbe on /health whose failureThreshold x periodSeconds covers"
        " download, loading and compilation.",
        span=liveness.span,
    )
