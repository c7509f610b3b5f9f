"""JSON Schemas of what the gate writes and reads, made from the very types."""

import json

import msgspec

from api_schemas.check import CheckReport, PolicyFile

_KINDS: dict[str, type[msgspec.Struct]] = {"report": CheckReport, "policy": PolicyFile}
SCHEMA_NAMES = tuple(_KINDS)


def json_schema(name: str) -> str:
    """Return the JSON Schema (draft 2020-12) of the report or of the policy file."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(_KINDS[name]),
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
