"""Which model a reference means."""

import difflib
import hashlib
from functools import cache, lru_cache
from typing import Literal

import msgspec

from api_schemas.model import ModelRef
from service.tuning.errors import UnknownModel, UnsupportedArchitecture
from service.tuning.hardware import parts
from service.tuning.models.entries import ModelEntry, entries, raw_data, sources
from service.tuning.models.hf_config import read_config
from service.tuning.models.spec import ModelSpec

__all__ = [
    "ModelEntry",
    "all_models",
    "catalogue_version",
    "find_model",
    "model_source",
    "resolve_model",
]

_Confidence = Literal["high", "medium", "low"]

_NEAR_NAMES = 5
_VERSION_DIGITS = 12
_CACHED_CONFIGS = 256
_ORDER: tuple[_Confidence, ...] = ("high", "medium", "low")


def resolve_model(ref: ModelRef) -> ModelSpec:
    """Return the model that `ref` means: its inline config, else the bundled one of its id.

    The spec is the model's alone; adapters and speculation stay on `ref`. Its id is one that vLLM
    can load: a bare name becomes the full one that it means. Raises UnknownModel for an id that is
    not bundled, and UnsupportedArchitecture for a layout that is not known.
    """
    if ref.config is not None:
        text = msgspec.json.encode(ref.config, order="deterministic")
        return _inline_spec(text, model_id=ref.id, weights_bytes=ref.weights_bytes)
    entry = find_model(ref.id)
    spec = _bundled_spec(entry.id)
    weights_bytes = ref.weights_bytes or spec.weights_bytes
    is_loadable = "/" in ref.id and ref.id.casefold() != entry.id.casefold()
    model_id = ref.id if is_loadable else entry.id
    return msgspec.structs.replace(spec, id=model_id, weights_bytes=weights_bytes)


def find_model(model_id: str) -> ModelEntry:
    """Return the bundled entry of an id, an alias, or a bare name that means one config.

    Case does not matter. Raises UnknownModel with near names.
    """
    found = _index().get(model_id.casefold())
    if found is None:
        raise _unknown(model_id)
    return entries()[found]


def all_models() -> tuple[ModelEntry, ...]:
    """Return every bundled model, those with a config of their own first."""
    return tuple(entries().values())


def model_source(entry: ModelEntry) -> str:
    """Return where an entry's config comes from, in words."""
    words = sources()[entry.source].replace("<id>", entry.id.replace("/", "--"))
    return f"{words}: {entry.base}" if entry.base else words


@cache
def catalogue_version() -> str:
    """Return a short hash of all bundled hardware and model data."""
    return hashlib.sha256(parts.raw_data() + raw_data()).hexdigest()[:_VERSION_DIGITS]


@lru_cache(maxsize=_CACHED_CONFIGS)
def _inline_spec(text: bytes, *, model_id: str, weights_bytes: int | None) -> ModelSpec:
    return read_config(msgspec.json.decode(text), model_id=model_id, weights_bytes=weights_bytes)


@cache
def _bundled_spec(model_id: str) -> ModelSpec:
    entry = entries()[model_id]
    try:
        spec = read_config(entry.config, model_id=entry.id, weights_bytes=entry.weights_bytes)
    except UnsupportedArchitecture as refusal:
        raise UnsupportedArchitecture(
            refusal.message, missing=refusal.missing, pointer="/model/id"
        ) from refusal
    confidence = max(spec.layout_confidence, _confidence(entry), key=_ORDER.index)
    return msgspec.structs.replace(spec, layout_confidence=confidence)


def _confidence(entry: ModelEntry) -> _Confidence:
    """Return how far the config may be trusted; an unread variant of a read one is between."""
    if entry.verified != "unverified":
        return "high"
    if entry.base is None:
        return "low"
    return "low" if _confidence(entries()[entry.base]) == "low" else "medium"


@cache
def _index() -> dict[str, str]:
    """Return the id for every spelling; full ids win over aliases, and those over bare names."""
    index = {model_id.casefold(): model_id for model_id in entries()}
    for entry in entries().values():
        for alias in entry.aliases:
            index.setdefault(alias.casefold(), entry.id)
    contested: set[str] = set()
    for spelling, model_id in list(index.items()):
        bare = spelling.rsplit("/", maxsplit=1)[-1]
        same = entries()[index.setdefault(bare, model_id)].config == entries()[model_id].config
        if not same:
            contested.add(bare)
    for bare in contested:
        del index[bare]
    return index


def _unknown(model_id: str) -> UnknownModel:
    keys = difflib.get_close_matches(
        model_id.casefold(), list(_index()), n=3 * _NEAR_NAMES, cutoff=0.5
    )
    near = list(dict.fromkeys(_index()[key] for key in keys))[:_NEAR_NAMES]
    hint = f"; near names: {', '.join(near)}" if near else ""
    return UnknownModel(
        f"no bundled model is called {model_id!r}{hint}. Send its config.json as model.config, "
        "register it with PUT /models, or switch on the Hub look-up.",
        pointer="/model/id",
    )
