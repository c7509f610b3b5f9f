"""Package data of the engine facts: read once, never changed."""

import json
from functools import cache
from importlib import resources

from api_schemas.base import Json


@cache
def read_facts(name: str) -> Json:
    """Return the parsed contents of `data/<name>.json`, with their sources inside."""
    path = resources.files("service.tuning.engine") / "data" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))
