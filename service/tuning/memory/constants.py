"""Constants of the memory model, keyed by vLLM release."""

import json
from functools import cache
from importlib import resources

from api_schemas.base import Json
from service.tuning.engine.versions import EngineVersion


@cache
def memory_constants() -> dict[str, Json]:
    """Return the parsed constants with their sources."""
    path = resources.files("service.tuning.memory") / "data" / "overheads.json"
    parsed: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
    return parsed


@cache
def constants_row(name: str, version: EngineVersion) -> dict[str, Json]:
    """Return the row of `name` that holds for this release."""
    for row in memory_constants()[name]["rows"]:
        if holds(row, version):
            found: dict[str, Json] = row
            return found
    raise LookupError(f"no row of {name} for vLLM {version.text}")


@cache
def constant(name: str, version: EngineVersion) -> float:
    """Return the single figure of `name` for this release."""
    return float(constants_row(name, version)["value"])


def holds(row: dict[str, Json], version: EngineVersion) -> bool:
    """Whether a row with `since` and `before` covers this release."""
    since, before = row.get("since"), row.get("before")
    return (since is None or version.since(since)) and (before is None or not version.since(before))
