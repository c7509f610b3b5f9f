"""What a tool takes, as JSON Schema that is short enough for a language model."""

from typing import Any

import msgspec

from api_schemas.engine import EngineConfig

_SETTINGS: dict[str, Any] = {
    "title": EngineConfig.__name__,
    "description": "vLLM settings by their own names, such as max_num_seqs; others are refused.",
    "type": "object",
    "additionalProperties": True,
}
"""The hundreds of settings one by one would be longer than all the rest; the service knows them."""


def input_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a request: an object at the root, its parts under `$defs`."""
    schema = msgspec.json.schema(kind)
    parts: dict[str, Any] = schema["$defs"]
    if EngineConfig.__name__ in parts:
        parts[EngineConfig.__name__] = _SETTINGS
    root: dict[str, Any] = parts.pop(kind.__name__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": parts}
