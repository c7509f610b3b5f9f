"""Plain pieces of text that files share."""

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import yaml

from api_schemas.base import Json
from service.tuning.render.rendering import Rendering

_NEVER_FOLD = 100_000
_SHORT = 256
"""Characters of texts that are remembered."""


def header(rendering: Rendering) -> list[str]:
    """Return what a file is and for what, one line each, without comment marks."""
    gpus = f"{rendering.gpus_per_replica} x {rendering.node.gpu.name}"
    return [
        f"Setpoint: {one_line(rendering.model_id)} with vLLM {rendering.version.text} on {gpus}."
    ]


def commented(lines: list[str]) -> str:
    """Return lines as comments of shell, YAML and Python alike."""
    return "".join(f"# {one_line(line)}\n" for line in lines)


def one_line(text: str) -> str:
    """Return text without line breaks and control characters."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(text.split())


def dump_yaml(*documents: Json, notes: list[str]) -> str:
    """Return YAML documents under a comment."""
    stream = io.StringIO()
    emitter = _Emitter(stream, allow_unicode=True, width=_NEVER_FOLD)
    try:
        _emit_all(emitter.emit, documents)
    finally:
        emitter.dispose()
    return commented(notes) + stream.getvalue()


# The C emitter writes the same text several times faster; it comes with PyYAML's wheels.
_Emitter: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_Emit = Callable[[yaml.Event], None]
_PLAIN: Any = yaml.resolver.Resolver()
_SCALARS: Any = yaml.SafeDumper(io.StringIO())


def _emit_all(emit: _Emit, documents: tuple[Json, ...]) -> None:
    """Emit documents without anchors: people edit these files.

    PyYAML's own way from a value to its events takes ten times as long.
    """
    emit(yaml.StreamStartEvent())
    for document in documents:
        emit(yaml.DocumentStartEvent(explicit=len(documents) > 1))
        _emit_value(emit, document)
        emit(yaml.DocumentEndEvent(explicit=False))
    emit(yaml.StreamEndEvent())


def _emit_value(emit: _Emit, value: Json) -> None:
    if isinstance(value, str):
        emit(_text(value) if len(value) <= _SHORT else _text.__wrapped__(value))
    elif isinstance(value, dict):
        emit(yaml.MappingStartEvent(None, None, implicit=True, flow_style=not value))
        for name, held in value.items():
            _emit_value(emit, name)
            _emit_value(emit, held)
        emit(yaml.MappingEndEvent())
    elif isinstance(value, list | tuple):
        emit(yaml.SequenceStartEvent(None, None, implicit=True, flow_style=not value))
        for held in value:
            _emit_value(emit, held)
        emit(yaml.SequenceEndEvent())
    else:
        node = _SCALARS.represent_data(value)
        emit(yaml.ScalarEvent(None, node.tag, (True, False), node.value))


@lru_cache(maxsize=4096)
def _text(value: str) -> yaml.ScalarEvent:
    """Return a text as it is where a reader takes it for one, else in quotes."""
    tag = "tag:yaml.org,2002:str"
    is_plain = _PLAIN.resolve(yaml.ScalarNode, value, (True, False)) == tag
    return yaml.ScalarEvent(None, tag, (is_plain, True), value)
