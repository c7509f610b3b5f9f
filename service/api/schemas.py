"""Component schemas of the document, in the words that client generators read.

What they allow is what the types allow; only constructs that generators stumble over are said
in another way that means the same.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_EVENT_ID = "^[0-9]+-[0-9]+$"
_SHAPES = frozenset({"properties", "additionalProperties", "patternProperties"})
"""Without one of these, an object of any content is read by generators as an empty one."""


def component_schemas(kinds: Sequence[type[Any]]) -> Json:
    """Return the schemas of these types, and of all they refer to, by name."""
    _, components = msgspec.json.schema_components(
        list(dict.fromkeys(kinds)), ref_template=REFERENCE
    )
    return {name: _said_plainly(schema) for name, schema in sorted(components.items())}


def reference(kind: type[Any]) -> Json:
    """Return a reference to the schema of a type."""
    return {"$ref": REFERENCE.format(name=kind.__name__)}


def events_schema(kinds: Mapping[str, type[Any]]) -> Json:
    """Return the schema of a stream of events; by name, what the JSON in their `data` is.

    OpenAPI 3.1 cannot tell a stream from its items: who reads the whole finds text, who reads
    event by event finds objects.
    """
    whole = {"type": "string", "title": "EventStream", "description": "The stream as it is sent."}
    return {"anyOf": [whole, *(_event_schema(name, kind) for name, kind in kinds.items())]}


def _event_schema(name: str, kind: type[Any]) -> Json:
    return {
        "type": "object",
        "title": f"{kind.__name__}Event",
        "description": f"An event `{name}`.",
        "required": ["id", "event", "data"],
        "properties": {
            "id": {"type": "string", "pattern": _EVENT_ID},
            "event": {"type": "string", "enum": [name]},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": reference(kind),
            },
        },
    }


def _said_plainly(node: Any) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(node, list):
        return [_said_plainly(child) for child in node]
    if not isinstance(node, dict):
        return node
    schema = {name: _said_plainly(child) for name, child in node.items()}
    if _closes_counted_array(schema):
        del schema["items"]
    if schema.get("type") == "object" and not schema.keys() & _SHAPES:
        schema["additionalProperties"] = True
    return _typed(schema) if isinstance(schema.get("enum"), list) else schema


def _closes_counted_array(schema: Json) -> bool:
    """Tell whether `items` only repeats that an array has no more items than it lists.

    A schema that is `false` is no object, which generators expect there.
    """
    counted = len(schema.get("prefixItems", ()))
    return schema.get("items") is False and schema.get("maxItems") == counted


def _typed(schema: Json) -> Json:
    """Return an enumeration with the type of its values; a choice where they are of two types.

    Generators make one enumeration of one type out of each.
    """
    options = [
        {"type": _TYPES[kind], "enum": list(values)}
        for kind, values in groupby(schema["enum"], key=type)
        if kind in _TYPES
    ]
    if sum(len(option["enum"]) for option in options) != len(schema["enum"]):
        return schema
    rest = {name: child for name, child in schema.items() if name != "enum"}
    return {**rest, **options[0]} if len(options) == 1 else {**rest, "anyOf": options}
