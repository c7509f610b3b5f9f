"""What each vLLM release knows: settings, their values, and metric names."""

from difflib import get_close_matches
from functools import cache, lru_cache

import msgspec

from api_schemas.explanation import Source
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.versions import NEWEST, OLDEST, EngineVersion

_KEPT = 1024
"""Lists of values that are remembered."""


class SettingHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Since when a setting exists, and what became of it."""

    name: str
    introduced: str | None
    """First release with it; None when the oldest release read (0.2.7) has it already."""
    removed: str | None
    """First release without it; None when the newest known still has it."""
    never: bool
    """No release ever had it, although the name is in use."""
    replaced_by: tuple[str, ...]
    note: str
    source: Source


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A Prometheus metric as one release exposes it."""

    role: str
    name: str
    type: str
    meaning: str


def canonical(setting: str) -> str:
    """Return the setting's name in snake case, without leading dashes."""
    return setting.lstrip("-").replace("-", "_")


@cache
def setting_history(setting: str) -> SettingHistory | None:
    """Return what is known of a setting, None when no inspected release has it."""
    facts = read_facts("settings")
    name = canonical(setting)
    entry = facts["settings"].get(name)
    if entry is None:
        return None
    return SettingHistory(
        name=name,
        introduced=entry.get("introduced"),
        removed=entry.get("removed"),
        never=entry.get("never", False),
        replaced_by=tuple(entry.get("replaced_by", ())),
        note=entry.get("note", ""),
        source=Source(**facts["source"]),
    )


def all_settings() -> tuple[str, ...]:
    """Return every setting name that some inspected release has or that is in use."""
    return tuple(read_facts("settings")["settings"])


def is_known(setting: str, version: EngineVersion) -> bool:
    """Whether that release's command line has the setting."""
    history = setting_history(setting)
    if history is None or history.never:
        return False
    if history.introduced is not None and not version.since(history.introduced):
        return False
    return history.removed is None or not version.since(history.removed)


def refusal(setting: str, version: EngineVersion) -> str | None:
    """Return why that release refuses the setting and what to use instead; None if it does not."""
    if is_known(setting, version):
        return None
    name = canonical(setting)
    history = setting_history(name)
    if history is None:
        near = get_close_matches(name, known_settings(version), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return f"vLLM {version.text} has no setting {name}{hint}"
    return " ".join(
        filter(None, (_when(history, version), history.note, _instead(history, version)))
    )


def known_settings(version: EngineVersion) -> tuple[str, ...]:
    """Return the settings of that release's command line."""
    return tuple(name for name in all_settings() if is_known(name, version))


def _when(history: SettingHistory, version: EngineVersion) -> str:
    text = f"vLLM {version.text} has no setting {history.name}"
    if history.never:
        return f"{text}."
    if history.removed is not None and version.since(history.removed):
        return f"{text}: it was removed in {history.removed}."
    return f"{text}: it came with {history.introduced}."


def _instead(history: SettingHistory, version: EngineVersion) -> str:
    usable = [name for name in history.replaced_by if is_known(name, version)]
    return f"Use {' or '.join(usable)} instead." if usable else ""


@lru_cache(maxsize=_KEPT)
def choices(name: str, version: EngineVersion) -> tuple[str | int, ...] | None:
    """Return the values that release accepts for a setting; None when free or not known.

    KV formats, quantisation methods and block sizes are known for every release, other closed
    lists only for the newest, whose own parser was asked.
    """
    setting = canonical(name)
    values = read_facts("values")
    if setting == "block_size":
        spans = [span for span in values["block_size"] if version.since(span["since"])]
        found = spans[-1]["choices"] if spans else None
        return None if found is None else tuple(found)
    if setting in {"kv_cache_dtype", "quantization"}:
        return tuple(v for v, life in values[setting].items() if _lives(life, version))
    if version.release < NEWEST.release:
        return None
    found = read_facts("grammar")["settings"].get(setting, {}).get("choices")
    return None if found is None else tuple(found)


def _lives(life: dict[str, str], version: EngineVersion) -> bool:
    removed = life.get("removed")
    return version.since(life.get("introduced", OLDEST.text)) and not (
        removed is not None and version.since(removed)
    )


def metric_name(role: str, version: EngineVersion) -> str | None:
    """Return the name under which that release exposes a figure; None when it does not.

    Roles are those of `metric_roles`; counters carry their `_total`.
    """
    for span in read_facts("metrics")["roles"][role]["names"]:
        until = span.get("until")
        if version.since(span["since"]) and not (until is not None and version.since(until)):
            return str(span["name"])
    return None


def metric_roles() -> tuple[str, ...]:
    """Return the roles that `metric_name` knows."""
    return tuple(read_facts("metrics")["roles"])


def metrics(version: EngineVersion) -> tuple[Metric, ...]:
    """Return the metrics of that release, by role."""
    found = []
    for role, facts in read_facts("metrics")["roles"].items():
        name = metric_name(role, version)
        if name is not None:
            found.append(Metric(role=role, name=name, type=facts["type"], meaning=facts["meaning"]))
    return tuple(found)


def metric_labels(version: EngineVersion) -> tuple[str, ...]:
    """Return the labels that every metric of that release carries."""
    spans = [s for s in read_facts("metrics")["labels"] if version.since(s["since"])]
    return tuple(spans[-1]["labels"]) if spans else ()
