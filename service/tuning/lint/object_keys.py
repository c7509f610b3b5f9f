"""Keys of JSON settings: objects whose keys one release knows and refuses others of."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import resources

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from service.tuning.engine.versions import EngineVersion


class UnknownKey(msgspec.Struct, frozen=True):
    """A key that the setting's object does not have."""

    setting: str
    message: str
    suggestion: str | None


def unknown_keys(config: EngineConfig, version: EngineVersion) -> Iterator[UnknownKey]:
    """Yield keys that the release refuses; silent for releases that were not asked."""
    facts = _facts()
    if not version.text.startswith(f"{facts['release']}."):
        return
    for setting, known in facts["keys"].items():
        value = getattr(config, setting)
        if value is not None and not isinstance(value, dict):
            yield UnknownKey(setting, f"{setting} takes a JSON object, not {value!r:.40}.", None)
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                near = get_close_matches(key, known, n=1)
                yield UnknownKey(
                    setting,
                    f"{setting} has no key {key[:60]!r} in vLLM {version.text}.",
                    f"Write {near[0]}." if near else f"It knows {', '.join(sorted(known)[:12])}.",
                )


@cache
def _facts() -> Json:
    path = resources.files("service.tuning.lint") / "data" / "object_keys.json"
    return json.loads(path.read_text(encoding="utf-8"))
