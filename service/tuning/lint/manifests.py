"""YAML of any kind: which format it is, and what it says about engines."""

from collections.abc import Callable

from service.tuning.lint.compose import is_compose, read_compose
from service.tuning.lint.found import Reading, Remark
from service.tuning.lint.kubernetes import has_pods, kind_of, read_object
from service.tuning.lint.template import directive_at, masked
from service.tuning.lint.text import SourceFile, Span
from service.tuning.lint.vllm_yaml import is_vllm_yaml, read_vllm_yaml
from service.tuning.lint.yaml_tree import Mapping, Node, find_text, items, read_yaml

Reader = Callable[[Node, str], Reading]


def read_manifests(file: SourceFile) -> Reading:
    """Return the engines of all documents in a file.

    Raises:
        Unreadable: it is no YAML or goes beyond the limits.
    """
    place = directive_at(file.content)
    if place is not None:
        return Reading(remarks=(_template_remark(place),))
    documents = read_yaml(SourceFile(file.path, masked(file.content)))
    readings = [_document(document, file.content) for document in documents]
    return Reading(
        engines=tuple(engine for reading in readings for engine in reading.engines),
        remarks=(
            *(remark for reading in readings for remark in reading.remarks),
            *_service_links(documents),
        ),
    )


def _template_remark(place: int) -> Remark:
    return Remark(
        rule="TPL002",
        message="The file is a template with branches or loops: what it becomes cannot be told"
        " from here.",
        suggestion="Check what it renders to: helm template ... | setpoint check -",
        span=Span(place, place + 2),
    )


def _document(document: Node, content: str) -> Reading:
    if not isinstance(document, Mapping):
        return Reading()
    kind = kind_of(document)
    if kind == "List":
        return _joined([_document(item, content) for item in items(document, "items")])
    if kind is not None:
        return read_object(document, content) if has_pods(kind) else Reading()
    if is_compose(document):
        return read_compose(document, content)
    if is_vllm_yaml(document):
        return read_vllm_yaml(document, content)
    return Reading()


def _joined(readings: list[Reading]) -> Reading:
    return Reading(
        engines=tuple(engine for reading in readings for engine in reading.engines),
        remarks=tuple(remark for reading in readings for remark in reading.remarks),
    )


def _service_links(documents: list[Node]) -> list[Remark]:
    """Return the clash of a Service called vllm with the variable VLLM_PORT."""
    return [
        Remark(
            rule="CTR006",
            message="A Service named vllm makes Kubernetes set VLLM_PORT to an address in every"
            " later pod of the namespace, and vLLM takes that for its own port.",
            suggestion="Rename the Service, or set enableServiceLinks: false in the pods.",
            span=document.span,
        )
        for document in documents
        if kind_of(document) == "Service" and find_text(document, "metadata", "name") == "vllm"
    ]
