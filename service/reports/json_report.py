"""JSON: the report as it is, for everything else."""

import msgspec

from api_schemas.check import CheckReport


def render_json(report: CheckReport) -> str:
    """Return the report as JSON of its published schema, indented, with a line's end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
