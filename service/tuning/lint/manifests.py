"""YAML of any kind: which format it is, and what it says about engines."""

from collections.abc import Callable

from service.tuning.lint.compose import is_compose, read_compose
from service.tuning.lint.config_maps import kaito_models, read_config_map, with_model
from service.tuning.lint.found import Reading, Remark, Word
from service.tuning.lint.helm_values import has_values, read_values
from service.tuning.lint.kserve import read_llm_service, read_model_format
from service.tuning.lint.kubernetes import has_pods, kind_of, read_object
from service.tuning.lint.limits import Unreadable
from service.tuning.lint.nested import read_nested
from service.tuning.lint.ray_serve import is_serve_config, read_serve_config
from service.tuning.lint.recipes import is_recipe, read_recipe
from service.tuning.lint.template import directive_at, masked
from service.tuning.lint.text import SourceFile, Span
from service.tuning.lint.vllm_yaml import is_vllm_yaml, read_vllm_yaml
from service.tuning.lint.yaml_tree import (
    Mapping,
    Node,
    Scalar,
    find,
    find_text,
    items,
    read_yaml,
)

Reader = Callable[[Mapping, str], Reading]
BlockReader = Callable[[SourceFile], Reading]


def read_manifests(file: SourceFile, *, read_block: BlockReader) -> Reading:
    """Return the engines of all documents in a file.

    `read_block` reads files that stand inside others, by their names.

    Raises:
        Unreadable: it is no YAML or goes beyond the limits.
    """
    place = directive_at(file.content)
    if place is not None and not is_recipe_text(file.content):
        return Reading(remarks=(_template_remark(place),))
    try:
        documents = read_yaml(SourceFile(file.path, masked(file.content)))
    except Unreadable as error:
        if error.is_malformed and "{{" in file.content:
            return Reading(remarks=(_template_remark(file.content.index("{{")),))
        raise
    reader = _Documents(file, documents, read_block)
    readings = [reader.read(document) for document in documents]
    return Reading(
        engines=tuple(engine for reading in readings for engine in reading.engines),
        remarks=(
            *(remark for reading in readings for remark in reading.remarks),
            *_service_links(documents),
        ),
    )


def is_recipe_text(content: str) -> bool:
    """Whether a file begins as recipes do; their guides may show templates."""
    return content.lstrip().startswith(("meta:", "#")) and "\nmodel:\n" in content


def _template_remark(place: int) -> Remark:
    return Remark(
        rule="TPL002",
        message="The file is a template with branches or loops: what it becomes cannot be told"
        " from here.",
        suggestion="Check what it renders to: helm template ... | setpoint check -",
        span=Span(place, place + 2),
    )


class _Documents:
    """Reads the documents of one file, each by its kind."""

    def __init__(self, file: SourceFile, documents: list[Node], read_block: BlockReader) -> None:
        self._content = file.content
        self._read_block = read_block
        self._kaito: dict[str, Word] = kaito_models(documents, file.content)
        self._readers: tuple[tuple[Callable[[Mapping], bool], Reader], ...] = (
            (is_compose, read_compose),
            (is_recipe, lambda node, text: read_recipe(node, text, read_block=read_block)),
            (is_serve_config, read_serve_config),
            (has_values, read_values),
            (is_vllm_yaml, read_vllm_yaml),
        )

    def read(self, document: Node) -> Reading:
        """Return the engines of one document."""
        kind = kind_of(document)
        if not isinstance(document, Mapping):
            return Reading()
        if kind is not None:
            return self._object(document, kind)
        for is_kind, read in self._readers:
            if is_kind(document):
                return read(document, self._content)
        return Reading()

    def _object(self, document: Mapping, kind: str) -> Reading:
        content = self._content
        match kind:
            case "List":
                return _joined([self.read(item) for item in items(document, "items")])
            case "ConfigMap":
                return self._config_map(document)
            case "LLMInferenceService" | "LLMInferenceServiceConfig":
                return Reading(engines=tuple(read_llm_service(document, content)))
            case "RayService":
                return self._ray_service(document)
            case "InferenceService":
                engines = tuple(read_model_format(document, content))
                return _joined([Reading(engines=engines), read_object(document, content)])
            case _:
                return read_object(document, content) if has_pods(kind) else Reading()

    def _config_map(self, document: Mapping) -> Reading:
        reading = read_config_map(document, read_yaml_file=self._read_block)
        name = find_text(document, "metadata", "name")
        return Reading(
            engines=tuple(with_model(engine, self._kaito, name) for engine in reading.engines),
            remarks=reading.remarks,
        )

    def _ray_service(self, document: Mapping) -> Reading:
        config = find(document, "spec", "serveConfigV2")
        if not isinstance(config, Scalar):
            return Reading()
        return read_nested(config.text, "serve.yaml", self._read_block)


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
