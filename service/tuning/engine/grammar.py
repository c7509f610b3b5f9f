"""How vLLM's command line writes each setting: flags, negative forms, kinds of value.

The kinds are those of the newest release, read from its own parser; settings removed before carry
the kind they had. What changed on the way is in the functions below, each with its release.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

import msgspec

from api_schemas.base import Json
from service.tuning.engine.facts import is_known
from service.tuning.engine.package_data import read_facts
from service.tuning.engine.versions import EngineVersion

Kind = Literal[
    "boolean", "switch", "int", "size", "size_or_auto", "float", "str", "json", "json_or_str"
]
"""`boolean` has a negative form, `switch` has none; `size` takes suffixes such as 32K."""


NOT_CONFIGURATION = frozenset({"model", "config", "api_key", "hf_token", "ssl_keyfile"})
"""Flags that name the model, a file or a secret: no part of an `EngineConfig`."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting's grammar."""

    name: str
    flag: str
    kind: Kind
    is_list: bool = False
    """Several values follow one flag."""
    is_repeated: bool = False
    """The flag is given once for each value."""
    short: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    choices: tuple[str | int, ...] = ()
    default: Json = None
    is_frontend: bool = False
    """Belongs to the API server rather than to the engine."""

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self.kind not in {"boolean", "switch"}


class Option(msgspec.Struct, frozen=True):
    """One spelling on the command line: its setting, and the value that a boolean takes."""

    setting: Setting
    value: bool | None = None


@cache
def grammar() -> Mapping[str, Setting]:
    """Return the grammar of every setting of `EngineConfig` by name, present and past."""
    facts = read_facts("grammar")
    entries = {**facts["removed"], **facts["settings"]}
    return MappingProxyType(
        {
            name: msgspec.convert({**entry, "name": name}, Setting)
            for name, entry in entries.items()
            if name not in NOT_CONFIGURATION
        }
    )


def negative_flag(setting: Setting, version: EngineVersion) -> str | None:
    """Return the flag that switches a boolean off in that release; None when it has none.

    `--no-x` came for all booleans of the engine with 0.9.0 and stayed valid when 0.33.0 added
    `--disable-x` beside it; prefix caching had it from 0.6.6 on, chunked prefill from 0.8.5.
    """
    negative = f"--no-{setting.flag.removeprefix('--')}"
    if setting.kind != "boolean":
        return None
    if setting.name == "enable_prefix_caching":
        return negative if version.since("0.6.6") else None
    if setting.name == "enable_chunked_prefill":
        return negative if version.since("0.8.5") else None
    return negative if version.since("0.9.0") else None


def takes_truth_value(setting: Setting, version: EngineVersion) -> bool:
    """Whether a boolean is written with a value, as chunked prefill was from 0.5.3 to 0.8.4."""
    return (
        setting.name == "enable_chunked_prefill"
        and version.since("0.5.3")
        and not version.since("0.8.5")
    )


def takes_pairs(setting: Setting, version: EngineVersion) -> bool:
    """Whether the value is written as `image=2,video=1`, the form before JSON came with 0.9.0."""
    return setting.name == "limit_mm_per_prompt" and not version.since("0.9.0")


@cache
def options(version: EngineVersion) -> Mapping[str, Option]:
    """Return every spelling that release's command line has."""
    found: dict[str, Option] = {}
    for setting in grammar().values():
        if is_known(setting.name, version):
            found.update(_spellings(setting, version))
    return MappingProxyType(found)


def _spellings(setting: Setting, version: EngineVersion) -> dict[str, Option]:
    value = None if setting.takes_value else True
    names = [setting.flag, *setting.short]
    names += [alias for alias in setting.aliases if is_known(alias, version)]
    found = {name: Option(setting, value) for name in names}
    negative = negative_flag(setting, version)
    if negative is not None:
        found[negative] = Option(setting, False)  # noqa: FBT003
    if setting.kind == "boolean" and version.since("0.33.0"):
        found |= {name: Option(setting, False) for name in _inverse(setting.flag)}  # noqa: FBT003
    return found


def _inverse(flag: str) -> list[str]:
    """Return `--disable-x` for `--enable-x` and the other way round."""
    pairs = {"--enable-": "--disable-", "--disable-": "--enable-"}
    return [new + flag.removeprefix(old) for old, new in pairs.items() if flag.startswith(old)]
