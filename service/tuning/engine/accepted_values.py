"""What one release takes for a setting: values of its kind, within its bounds, from its list."""

import math
from collections.abc import Mapping
from difflib import get_close_matches

from api_schemas.base import Json
from service.tuning.engine.facts import choices
from service.tuning.engine.grammar import Setting, grammar
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.values import write_value
from service.tuning.engine.versions import OLDEST, EngineVersion

_MOST_SHOWN = 24
_LISTS_OF_TEXT = frozenset({"allowed_headers", "allowed_methods", "allowed_origins"})
"""JSON settings that hold lists; all others hold objects (vLLM 0.33.0 entrypoints/common)."""
_OBJECT_ITEMS = frozenset({"lora_modules"})
_LEVELS_UNTIL = "0.12.0"
"""Before it a level from 0 to 3 stood for a compilation_config: engine/arg_utils.py."""


def value_obstacle(
    name: str, value: Json, *, version: EngineVersion, given: Mapping[str, Json]
) -> str | None:
    """Return why that release refuses the value, with what it takes instead; None if it does not.

    `given` are all settings beside it: some lists count only with another setting, or are longer
    with a plug-in. What no inspected release says is never refused.
    """
    setting = grammar().get(name)
    if setting is None:
        return None
    kind = _wrong_kind(setting, value, version)
    if kind is not None:
        return f"{name}={_shown(value)} is no value that vLLM takes: {kind}"
    bound = _out_of_bounds(name, value, version)
    if bound is not None:
        return f"{name}={_shown(value)} is out of range: vLLM {version.text} takes {bound}"
    return _unlisted(setting, value, version=version, given=given)


def _wrong_kind(setting: Setting, value: Json, version: EngineVersion) -> str | None:
    if setting.is_list or setting.is_repeated:
        items = value if isinstance(value, list) else [value]
        wrong = (_wrong_item(setting, item, version) for item in items)
        return next((reason for reason in wrong if reason is not None), None)
    return _wrong_item(setting, value, version)


def _wrong_item(setting: Setting, value: Json, version: EngineVersion) -> str | None:
    """Return what the setting takes, when one value of it is of another kind."""
    if not setting.takes_value:
        return None if isinstance(value, bool) else "it is either true or false"
    if setting.kind == "json":
        return _wrong_object(setting, value, version)
    if isinstance(value, dict) and (setting.kind == "json_or_str" or setting.name in _OBJECT_ITEMS):
        return None
    try:
        write_value(setting, value)
    except (TypeError, ValueError):
        return _KINDS[setting.kind]
    return None


def _wrong_object(setting: Setting, value: Json, version: EngineVersion) -> str | None:
    if setting.name in _LISTS_OF_TEXT:
        return None if isinstance(value, list) else "it is a list of texts"
    is_level = setting.name == "compilation_config" and value in (0, 1, 2, 3)
    if isinstance(value, dict) or (is_level and not version.since(_LEVELS_UNTIL)):
        return None
    return _KINDS["json"]


_KINDS = {
    "int": "it is a whole number",
    "size": "it is a whole number",
    "size_or_auto": "it is a whole number or auto",
    "float": "it is a number",
    "json": "it is an object of settings",
    "json_or_str": "it is an object of settings or a text",
    "str": "it is a text",
}


def _out_of_bounds(name: str, value: Json, version: EngineVersion) -> str | None:
    """Return the range that the release takes, when the value is no number within it."""
    bounds = read_facts("values")["ranges"].get(name)
    if bounds is None or not version.since(bounds.get("since", OLDEST.text)):
        return None
    if _is_within(bounds, value):
        return None
    words = {"at_least": "at least", "at_most": "at most", "above": "above", "below": "below"}
    return " and ".join(f"{word} {bounds[key]:g}" for key, word in words.items() if key in bounds)


def _is_within(bounds: Mapping[str, float], value: Json) -> bool:
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return False
    return bounds.get("at_least", -math.inf) <= number <= bounds.get(
        "at_most", math.inf
    ) and bounds.get("above", -math.inf) < number < bounds.get("below", math.inf)


def _unlisted(
    setting: Setting, value: Json, *, version: EngineVersion, given: Mapping[str, Json]
) -> str | None:
    entry = read_facts("values")["lists"].get(setting.name, {})
    allowed = listed_values(setting.name, version)
    if allowed is None or not _counts(entry, given):
        return None
    for item in value if isinstance(value, list) else [value]:
        if not _is_listed(item, allowed, entry):
            return (
                f"{setting.name}={_shown(item)} is none of the values vLLM {version.text} takes:"
                f" {_naming(item, allowed, entry)}"
            )
    return None


def _naming(value: Json, allowed: tuple[str | int, ...], entry: Mapping[str, Json]) -> str:
    """Return what is taken instead, the likest first."""
    texts = [str(choice) for choice in allowed]
    near = get_close_matches(str(value), texts, n=3)
    ordered = [*near, *(text for text in texts if text not in near)]
    more = f" and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    path = ", or the path of a class" if entry.get("takes_paths") else ""
    plugged = f", unless {entry['unless']}" if "unless" in entry else ""
    return f"{', '.join(ordered[:_MOST_SHOWN])}{more}{path}{plugged}"


def _counts(entry: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """Whether vLLM looks the value up in its own list, with the settings beside it."""
    read_when, extended_by = entry.get("read_when"), entry.get("extended_by")
    is_read = read_when is None or given.get(read_when) is True
    return is_read and (extended_by is None or not given.get(extended_by))


def _is_listed(value: Json, allowed: tuple[str | int, ...], entry: Mapping[str, Json]) -> bool:
    if not isinstance(value, str | int) or value == "":
        return True
    if entry.get("takes_paths") and "." in str(value):
        return True
    if entry.get("any_case"):
        return str(value).upper() in allowed
    return value in allowed or str(value) in allowed


def listed_values(name: str, version: EngineVersion) -> tuple[str | int, ...] | None:
    """Return the values that the release has for a setting; None when free or not known.

    Between two inspected releases the values of both count; before the first none are known.
    """
    closed = choices(name, version)
    if closed:
        return closed
    spans = read_facts("values")["lists"].get(name, {}).get("spans", [])
    earlier = [span for span in spans if version.since(span["first"])]
    if not earlier:
        return None
    span = earlier[-1]
    if version.release <= EngineVersion.of(span["last"]).release:
        return tuple(span["choices"])
    if len(earlier) == len(spans):
        return None
    later = spans[len(earlier)]["choices"]
    return (*span["choices"], *(value for value in later if value not in span["choices"]))


def _shown(value: Json) -> str:
    return str(value)[:64]
