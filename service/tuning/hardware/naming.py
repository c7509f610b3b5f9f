"""What a name means: catalogue names, driver names, short names, instances, MIG slices."""

import difflib
import re
from functools import cache

import msgspec

from service.tuning.errors import UnknownGpu
from service.tuning.hardware.mig import slice_gpu, split_profile
from service.tuning.hardware.parts import (
    Instance,
    ambiguous_names,
    entries,
    gpus,
    instances,
)
from service.tuning.hardware.spec import Gpu

_NEAR_NAMES = 5
_SIZE_TOLERANCE = 0.1
_NOISE = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "instinct", "intel", "corporation", "r", "tm", "ml"}
    | {"gpu", "gpus", "accelerator", "graphics", "card", "wsl", "wsl2", "windows", "linux"}
)
_LEADING_COUNT = re.compile(r"^\s*(\d{1,3})\s*[x*]\s*(?=[a-z])", re.IGNORECASE)
_TRAILING_COUNT = re.compile(r"\s+[x*]\s*(\d{1,3})\s*$", re.IGNORECASE)
_SIZE = re.compile(r"\b(\d{1,3})\s*gi?b\b", re.IGNORECASE)
_PARENTHESIS = re.compile(r"\([^)]*\)")
_GLUED_SIZE = re.compile(r"(\d)gi?b\b", re.IGNORECASE)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a name may mean, commonest first, and what else it says."""

    gpus: tuple[Gpu, ...]
    count: int | None = None
    """GPUs that the name itself counts, as in `8x H100`."""
    instance: Instance | None = None


def match_name(name: str) -> Match:
    """Return what `name` means.

    Case, spaces, dashes and vendor prefixes do not matter. Raises UnknownGpu with near names.
    """
    found = _look_up(name)
    if found is not None:
        return found
    bare, count = _split_count(name)
    bare, profile = split_profile(bare)
    found = _look_up(bare) or _without_extras(bare)
    if found is None:
        raise _unknown(name)
    if profile is not None:
        slices = (slice_gpu(gpu, profile, entry=entries()[gpu.name]) for gpu in found.gpus)
        kept = tuple(part for part in slices if part is not None)
        if not kept:
            raise UnknownGpu(
                f"{found.gpus[0].name} has no MIG profile {profile.label}", pointer="/hardware/gpu"
            )
        found = Match(gpus=kept)
    return msgspec.structs.replace(found, count=count) if count else found


def _look_up(name: str) -> Match | None:
    return _index().get(_key(name))


def _without_extras(name: str) -> Match | None:
    """Return the match without remarks in parentheses and without a size that agrees."""
    plain = _PARENTHESIS.sub(" ", name)
    found = _look_up(plain)
    if found is not None:
        return found
    sizes = _SIZE.findall(plain)
    found = _look_up(_SIZE.sub(" ", plain))
    if found is None or not sizes:
        return found
    kept = tuple(gpu for gpu in found.gpus if _has_size(gpu, float(sizes[0])))
    return msgspec.structs.replace(found, gpus=kept) if kept else None


def _has_size(gpu: Gpu, size_gb: float) -> bool:
    vendor_gb = gpu.memory_gb_vendor or gpu.memory_gib
    return abs(size_gb - vendor_gb) <= _SIZE_TOLERANCE * vendor_gb


def _split_count(name: str) -> tuple[str, int | None]:
    for pattern in (_LEADING_COUNT, _TRAILING_COUNT):
        found = pattern.search(name)
        if found is not None and int(found[1]) > 0:
            return name[: found.start()] + name[found.end() :], int(found[1])
    return name, None


def _key(name: str) -> str:
    """Return `name` in the one spelling that all its spellings share."""
    text = _GLUED_SIZE.sub(r"\1gb", name.lower())
    words = re.split(r"[^a-z0-9+]+", text)
    return "".join(word for word in words if word not in _NOISE)


@cache
def _index() -> dict[str, Match]:
    parts = gpus()
    index: dict[str, Match] = {}
    for alias, names in ambiguous_names().items():
        index[_key(alias)] = Match(gpus=tuple(parts[name] for name in names))
    for entry in entries().values():
        for alias in (entry.name, entry.driver_name, *entry.aliases):
            index.setdefault(_key(alias), Match(gpus=(parts[entry.name],)))
    for item in instances():
        for alias in (item.name, *item.aliases):
            index.setdefault(_key(alias), Match(gpus=(parts[item.gpu],), instance=item))
    return index


@cache
def _spellings() -> dict[str, str]:
    """Return what to suggest for each key: the catalogue's name, or the instance's."""
    suggestions: dict[str, str] = {}
    for key, match in _index().items():
        suggestions[key] = match.instance.name if match.instance else match.gpus[0].name
    return suggestions


def _unknown(name: str) -> UnknownGpu:
    keys = difflib.get_close_matches(_key(name), list(_spellings()), n=3 * _NEAR_NAMES, cutoff=0.5)
    near = list(dict.fromkeys(_spellings()[key] for key in keys))[:_NEAR_NAMES]
    hint = f"; near names: {', '.join(near)}" if near else ""
    return UnknownGpu(
        f"no catalogue GPU or instance is called {name!r}{hint}. "
        "GET /gpus lists them; hardware.spec describes a part that is missing.",
        pointer="/hardware/gpu",
    )
