"""What would have been allowed: hints for the mistakes that a decoder reports."""

import difflib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from api_schemas.problem import FieldError
from service.problems import field_error_of_validation

_SCHEMAS: dict[type[Any], tuple[dict[str, Any], dict[str, Any]]] = {}
"""Made on the first mistake in a body of that kind."""
_MAX_LISTED = 24
_MAX_NEAR = 3
_MAX_MESSAGE = 300
_NO_OBJECT = re.compile(r"Expected `[^`]*\bobject\b")
_DEEPEST = 4
"""Levels of a body in which a misplaced field is looked for."""
_REGEX = " matching regex "
"""Only programmers read these; the schema says the same in words."""
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"missing required field `(.*)`", re.DOTALL)


def explain_mistake(message: str, kind: type[Any]) -> FieldError:
    """Return pointer and message of a decoding error, with what `kind` allows at that place."""
    error = field_error_of_validation(message)
    pointer, hint = error.pointer, ""
    if unknown := _UNKNOWN_FIELD.search(error.message):
        hint = _near_fields(unknown[1], _fields(kind, _parent(pointer)))
        hint += _elsewhere(kind, unknown[1])
    elif missing := _MISSING_FIELD.search(error.message):
        pointer = _child(pointer, missing[1])
        hint = _listed(_choices(kind, pointer))
    elif error.message.startswith("Invalid"):
        hint = _listed(_choices(kind, pointer))
    elif _NO_OBJECT.match(error.message):
        hint = _needed(kind, pointer)
    text = error.message
    if _REGEX in text:
        text = _form(kind, pointer) or text
    shown = text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."
    return FieldError(pointer=pointer, message=shown + hint)


def _form(kind: type[Any], pointer: str) -> str:
    """Return in words what a text at this place looks like; empty where the schema is silent."""
    for node in _at(kind, pointer):
        if node.get("type") == "string" and "description" in node:
            what = str(node["description"]).rstrip(".")
            given = node.get("examples", [])
            if given:
                return f"Expected a value such as {given[0]} ({what[:1].lower()}{what[1:]})"
            return f"Expected: {what[:1].lower()}{what[1:]}"
    return ""


def _needed(kind: type[Any], pointer: str) -> str:
    """Return an example of an object at this place, or which fields it must have."""
    given = [one for node in _at(kind, pointer) for one in node.get("examples", [])]
    if given:
        return f", such as {msgspec.json.encode(given[0]).decode()}"
    nodes = [node for node in _at(kind, pointer) if node.get("required")]
    required = nodes[0]["required"] if len(nodes) == 1 else []
    inside = ", ".join(f'"{name}": ...' for name in required)
    if inside:
        return f", such as {{{inside}}}"
    kinds = [
        str(value)
        for node in _at(kind, pointer)
        for value in node.get("properties", {}).get("kind", {}).get("enum", [])
    ]
    if kinds:
        return f"; an object has a kind: {', '.join(kinds)}"
    fields = _fields(kind, pointer)
    return _listed(fields) if len(fields) <= _MAX_LISTED else ""


def _elsewhere(kind: type[Any], name: str) -> str:
    """Return where in the body a field of this name stands, when that is a place or two."""
    root, components = _schema(kind)
    level = [("", node) for node in _unfold(root, components)]
    for _ in range(_DEEPEST):
        places = sorted({at for at, node in level if name in node.get("properties", {})})
        if places:
            return f"; {name} stands in {' or '.join(places)}" if len(places) <= _MAX_NEAR else ""
        level = [
            (_child(pointer, field), node)
            for pointer, parent in level
            for field, child in parent.get("properties", {}).items()
            for node in _unfold(child, components)
        ]
    return ""


def _near_fields(name: str, fields: list[str]) -> str:
    if len(fields) <= _MAX_LISTED:
        return _listed(fields)
    near = difflib.get_close_matches(name, fields, n=_MAX_NEAR)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _listed(choices: list[str]) -> str:
    return f"; allowed: {', '.join(choices)}" if choices else ""


def _fields(kind: type[Any], pointer: str) -> list[str]:
    return sorted({name for node in _at(kind, pointer) for name in node.get("properties", {})})


def _choices(kind: type[Any], pointer: str) -> list[str]:
    found = [value for node in _at(kind, pointer) for value in node.get("enum", [])]
    return [str(value) for value in dict.fromkeys(found)]


def _at(kind: type[Any], pointer: str) -> list[dict[str, Any]]:
    """Return every schema that may stand at this place of a document of this kind."""
    root, components = _schema(kind)
    nodes = list(_unfold(root, components))
    for step in _steps(pointer):
        nodes = [
            node
            for parent in nodes
            for child in _children(parent, step)
            for node in _unfold(child, components)
        ]
    return nodes


def _children(node: dict[str, Any], step: str) -> Iterator[dict[str, Any]]:
    if step in node.get("properties", {}):
        yield node["properties"][step]
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield node[key]


def _unfold(node: dict[str, Any], components: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the alternatives of a schema, with references followed."""
    if reference := node.get("$ref"):
        yield from _unfold(components[reference.rsplit("/", 1)[1]], components)
    elif options := node.get("anyOf"):
        for option in options:
            yield from _unfold(option, components)
    else:
        yield node


def _schema(kind: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if kind not in _SCHEMAS:
        (root,), components = msgspec.json.schema_components([kind])
        _SCHEMAS[kind] = (root, components)
    return _SCHEMAS[kind]


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _parent(pointer: str) -> str:
    return pointer.rpartition("/")[0]


def _child(pointer: str, name: str) -> str:
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
