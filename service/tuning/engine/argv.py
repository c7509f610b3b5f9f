"""A configuration as the argument list of `vllm serve`, per release."""

import re
from collections.abc import Callable
from operator import attrgetter

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.engine_settings import OtherSettings
from service.tuning.engine.argv_reader import from_argv
from service.tuning.engine.argv_report import ArgvProblem, ParsedArgv
from service.tuning.engine.facts import refusal
from service.tuning.engine.grammar import (
    Setting,
    grammar,
    negative_flag,
    takes_pairs,
    takes_truth_value,
)
from service.tuning.engine.values import write_pairs, write_value
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest

__all__ = [
    "ArgvProblem",
    "ParsedArgv",
    "from_argv",
    "given_settings",
    "setting_argv",
    "settings_argv",
    "to_argv",
]

_NUMBER = re.compile(r"-\d+")
_OTHER = frozenset(OtherSettings.__struct_fields__)
_IN_ORDER = (
    *(name for name in EngineConfig.__struct_fields__ if name not in _OTHER),
    *OtherSettings.__struct_fields__,
)
_READ_ALL: Callable[[EngineConfig], tuple[Json, ...]] = attrgetter(*_IN_ORDER)


def to_argv(model_id: str, config: EngineConfig, version: EngineVersion) -> list[str]:
    """Return `vllm serve MODEL --flag value ...` as that release accepts it.

    Booleans stand as `--enable-x` or `--no-enable-x`, never with a value; JSON is compact.

    Raises:
        InvalidRequest: the release lacks a setting, a value is of another kind, or the model id
            could be read as a flag; the pointer names the field.
    """
    _reject_flag_like_model(model_id)
    return ["vllm", "serve", model_id, *settings_argv(config, version)]


def settings_argv(config: EngineConfig, version: EngineVersion) -> list[str]:
    """Return the flags and values of all given settings, without program and model."""
    return [
        argument
        for name, value in given_settings(config).items()
        for argument in setting_argv(name, value, version)
    ]


def given_settings(config: EngineConfig) -> dict[str, Json]:
    """Return the settings that are given, the tuned ones first."""
    values = zip(_IN_ORDER, _READ_ALL(config), strict=True)
    return {name: value for name, value in values if value is not None}


def setting_argv(name: str, value: Json, version: EngineVersion) -> list[str]:
    """Return one setting's arguments; empty when the release needs none to say it.

    Raises:
        InvalidRequest: as `to_argv`.
    """
    reason = refusal(name, version)
    setting = grammar().get(name) or _alias(name)
    if reason is not None or setting is None:
        raise _refused(name, reason or f"vLLM {version.text} has no setting {name}")
    try:
        if not setting.takes_value:
            return _truth_argv(setting, value, version)
        return _value_argv(setting, value, version)
    except (TypeError, ValueError) as error:
        raise _refused(name, f"{name}: {error}") from None


def _alias(name: str) -> Setting | None:
    flag = f"--{name.replace('_', '-')}"
    return next((s for s in grammar().values() if flag in s.aliases), None)


def _refused(name: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, pointer=f"/engine/config/{name}")


def _reject_flag_like_model(model_id: str) -> None:
    if not model_id or model_id.startswith("-") or not model_id.isprintable():
        raise InvalidRequest(
            f"model id {model_id[:64]!r} must be printable and must not start with a dash",
            pointer="/model/id",
        )


def _truth_argv(setting: Setting, value: Json, version: EngineVersion) -> list[str]:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    if value:
        return [setting.flag]
    if takes_truth_value(setting, version):
        return [f"{setting.flag}=False"]
    negative = negative_flag(setting, version)
    if setting.is_frontend and setting.default is False:
        return []
    if negative is not None:
        return [negative]
    if setting.default is True:
        raise ValueError(f"vLLM {version.text} cannot switch it off on the command line")
    # Without a negative form a release has it off by default.
    return []


def _value_argv(setting: Setting, value: Json, version: EngineVersion) -> list[str]:
    if setting.is_list:
        return _list_argv(setting, value)
    if setting.is_repeated and isinstance(value, list):
        one_each = (_value_argv(setting, item, version) for item in value)
        return [argument for arguments in one_each for argument in arguments]
    if setting.name == "max_model_len" and value in {"auto", -1} and not version.since("0.14.0"):
        raise ValueError(f"vLLM {version.text} cannot choose it; auto came with 0.14.0")
    text = write_pairs(value) if takes_pairs(setting, version) else write_value(setting, value)
    # A text that starts with a dash would be read as the next flag.
    return [f"{setting.flag}={text}"] if text.startswith("-") else [setting.flag, text]


def _list_argv(setting: Setting, value: Json) -> list[str]:
    items = value if isinstance(value, list | tuple) else [value]
    texts = [write_value(setting, item) for item in items]
    if not texts:
        raise ValueError("an empty list cannot be given")
    if any(text.startswith("-") and not _NUMBER.fullmatch(text) for text in texts):
        raise ValueError("an item must not start with a dash")
    return [setting.flag, *texts]
