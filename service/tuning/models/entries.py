"""The bundled models, read once from package data."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from api_schemas.base import Json

Evidence = Literal["file", "log", "arithmetic", "unverified"]
"""Why a config is believed: its file was read, a start-up log agrees with it, its shapes give
the stated number of parameters, or nothing of the kind."""

_SHARED = "shared.json"
_VARIANTS = "variants.json"
_REFUSED = "refused.json"


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue: its config.json, and where that comes from."""

    id: str
    aliases: tuple[str, ...]
    config: dict[str, Json]
    source: str
    """Key of `sources`."""
    verified: Evidence
    assumed: tuple[str, ...]
    """Fields of `config` that the source does not hold."""
    parameters: int | None
    """Parameters as the model's card states them, without multi-token-prediction layers."""
    weights_bytes: int | None
    base: str | None
    """The model whose config this one takes over."""
    note: str | None
    is_supported: bool
    """Whether the layout can be estimated."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    source: str
    verified: Evidence
    aliases: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    parameters: int | None = None
    weights_bytes: int | None = None
    note: str | None = None
    config: dict[str, Json] | None = None
    base: str | None = None
    quantization: str | None = None
    changes: dict[str, Json] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    models: tuple[_Record, ...]


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    sources: dict[str, str]
    quantizations: dict[str, dict[str, Json]]


@cache
def entries() -> Mapping[str, ModelEntry]:
    """Return the bundled models by id; those with a config of their own come first."""
    records = _records()
    return {record.id: _entry(record, records) for record in records.values()}


def sources() -> Mapping[str, str]:
    """Return what the source keys of the entries stand for."""
    return _shared().sources


@cache
def raw_data() -> bytes:
    """Return every file as it is, in the order of names, for the catalogue's content version."""
    return b"".join(_read(name) for name in [*_model_files(), _REFUSED, _SHARED, _VARIANTS])


@cache
def _records() -> Mapping[str, _Record]:
    records: dict[str, _Record] = {}
    for name in [*_model_files(), _REFUSED, _VARIANTS]:
        for record in msgspec.json.decode(_read(name), type=_File).models:
            if record.id in records:
                raise ValueError(f"the model catalogue holds {record.id} twice")
            records[record.id] = record
    return records


@cache
def _refused_ids() -> frozenset[str]:
    return frozenset(
        record.id for record in msgspec.json.decode(_read(_REFUSED), type=_File).models
    )


@cache
def _shared() -> _Shared:
    return msgspec.json.decode(_read(_SHARED), type=_Shared)


def _model_files() -> list[str]:
    """Return the files of models that have a config of their own."""
    names = (item.name for item in resources.files(__package__).joinpath("data").iterdir())
    special = {_SHARED, _VARIANTS, _REFUSED}
    return sorted(name for name in names if name.endswith(".json") and name not in special)


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath("data", name).read_bytes()


def _entry(record: _Record, records: Mapping[str, _Record]) -> ModelEntry:
    return ModelEntry(
        id=record.id,
        aliases=record.aliases,
        config=_config(record, records),
        source=record.source,
        verified=record.verified,
        assumed=record.assumed,
        parameters=record.parameters,
        weights_bytes=record.weights_bytes,
        base=record.base,
        note=record.note,
        is_supported=record.id not in _refused_ids(),
    )


def _config(record: _Record, records: Mapping[str, _Record]) -> dict[str, Json]:
    """Return the record's own config, or its base's with the changes; null takes a field away."""
    if record.config is not None:
        return record.config
    if record.base is None:
        raise ValueError(f"{record.id} has neither a config nor a base")
    config = dict(_config(records[record.base], records))
    if record.quantization is not None:
        config["quantization_config"] = _shared().quantizations[record.quantization]
    for name, value in (record.changes or {}).items():
        if value is None:
            config.pop(name, None)
        else:
            config[name] = value
    return config
