"""Package data of the rules: read once, never changed."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from api_schemas.base import Json
from service.tuning.engine.versions import EngineVersion


@cache
def read_rules_data(name: str) -> Json:
    """Return the parsed contents of `data/<name>.json`, with their sources inside."""
    path = resources.files("service.tuning.rules") / "data" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def holds_for(entry: Mapping[str, Json], version: EngineVersion) -> bool:
    """Whether `entry` (with optional since and until, the latter excluded) covers a release."""
    since, until = entry.get("since"), entry.get("until")
    is_before = since is not None and not version.since(since)
    return not is_before and not (until is not None and version.since(until))


def entry_for(entries: Iterable[Mapping[str, Json]], version: EngineVersion) -> Mapping[str, Json]:
    """Return the first entry that covers the release; empty when none does."""
    return next((entry for entry in entries if holds_for(entry, version)), {})
