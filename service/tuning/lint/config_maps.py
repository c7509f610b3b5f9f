"""ConfigMaps: KAITO's inference configuration, vLLM's own file, scripts."""

from collections.abc import Callable, Iterator

import msgspec

from service.tuning.lint.found import FoundEngine, Reading, Word
from service.tuning.lint.manifest_words import word_of
from service.tuning.lint.nested import read_nested
from service.tuning.lint.shell import read_shell
from service.tuning.lint.template import masked
from service.tuning.lint.text import SourceFile
from service.tuning.lint.vllm_yaml import read_vllm_yaml
from service.tuning.lint.yaml_tree import Mapping, Node, Scalar, find, find_text, read_yaml

YamlReader = Callable[[SourceFile], Reading]


def read_config_map(document: Node, *, read_yaml_file: YamlReader) -> Reading:
    """Return the engines in the files that a ConfigMap holds."""
    readings = [
        _read_entry(key.text.value, value, read_yaml_file) for key, value in _entries(document)
    ]
    return Reading(
        engines=tuple(engine for reading in readings for engine in reading.engines),
        remarks=tuple(remark for reading in readings for remark in reading.remarks),
    )


def kaito_models(documents: list[Node], content: str) -> dict[str, Word]:
    """Return for each ConfigMap that a KAITO workspace uses the model that it serves."""
    found: dict[str, Word] = {}
    for document in documents:
        name = find_text(document, "inference", "config")
        preset = find(document, "inference", "preset", "name")
        if find_text(document, "kind") == "Workspace" and name and isinstance(preset, Scalar):
            found[name] = word_of(preset, content)
    return found


def with_model(engine: FoundEngine, models: dict[str, Word], name: str | None) -> FoundEngine:
    """Return the engine with the model of the workspace that uses its ConfigMap."""
    model = models.get(name or "")
    if model is None or engine.model is not None:
        return engine
    return msgspec.structs.replace(engine, model=model, title=f"KAITO workspace {model.value}")


def _entries(document: Node) -> Iterator[tuple[Scalar, Scalar]]:
    data = find(document, "data")
    if isinstance(data, Mapping):
        for key, value in data.all_entries():
            if isinstance(value, Scalar):
                yield key, value


def _read_entry(name: str, value: Scalar, read_yaml_file: YamlReader) -> Reading:
    if name.endswith((".yaml", ".yml")):
        return read_nested(value.text, name, lambda file: _kaito(file) or read_yaml_file(file))
    if name.endswith((".sh", ".bash")) or value.text.value.startswith("#!"):
        return read_nested(value.text, name, lambda file: read_shell(file.text))
    return Reading()


def _kaito(file: SourceFile) -> Reading | None:
    """Return the engine of KAITO's inference configuration; None when it is another file."""
    for document in read_yaml(SourceFile(file.path, masked(file.content))):
        settings = find(document, "vllm")
        if isinstance(settings, Mapping):
            (engine,) = read_vllm_yaml(settings, file.content).engines
            titled = msgspec.structs.replace(engine, title="KAITO inference configuration")
            return Reading(engines=(titled,))
    return None
