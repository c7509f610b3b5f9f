"""Which modules a checkpoint's patterns name: plain names, globs, or `re:` expressions."""

import fnmatch
import functools
import re
from collections.abc import Callable, Iterator

import msgspec

from service.tuning.models.spec import Quantization, WeightFormat


def weight_format(
    quantization: Quantization | None, name: str, *, is_expert: bool = False
) -> WeightFormat | None:
    """Return how the named linear layer is stored, None when it stays in the model's dtype."""
    if quantization is None or (quantization.experts_only and not is_expert):
        return None
    matcher = _matcher(quantization)
    if matcher.ignores(name):
        return None
    is_head = name == "lm_head"
    for stored, targets in matcher.formats:
        if is_head if targets is None else not targets(name):
            continue
        return stored
    return None


_Test = Callable[[str], bool]


class _Matcher(msgspec.Struct, frozen=True):
    ignores: _Test
    formats: tuple[tuple[WeightFormat, _Test | None], ...]


@functools.lru_cache(maxsize=256)
def _matcher(quantization: Quantization) -> _Matcher:
    return _Matcher(
        ignores=_any_of(quantization.ignore),
        formats=tuple(
            (stored, _any_of(stored.targets) if stored.targets else None)
            for stored in quantization.formats
        ),
    )


def _any_of(patterns: tuple[str, ...]) -> _Test:
    """Return a test whether any pattern names a module."""
    plain: set[str] = set()
    prefixes: set[str] = set()
    searched: list[str] = []
    for pattern in patterns:
        if pattern.startswith("re:"):
            linear = _linear(pattern.removeprefix("re:"))
            searched.extend([] if linear is None else [linear])
        elif "*" not in pattern:
            plain.add(_bare(pattern))
        elif _LAYER_PREFIX.fullmatch(pattern):
            prefixes.add(_bare(pattern[:-1]))
        else:
            searched.append(fnmatch.translate(pattern))
    compiled = re.compile("|".join(f"(?:{item})" for item in searched)) if searched else None

    def matches(name: str) -> bool:
        variants = _variants(_bare(name))
        if plain and any(part in plain for variant in variants for part in _parts(variant)):
            return True
        if prefixes and any(v[:end] in prefixes for v in variants for end in range(len(v) + 1)):
            return True
        return compiled is not None and any(
            compiled.match(stem + variant) for variant in variants for stem in ("", *_STEMS)
        )

    return matches


_LAYER_PREFIX = re.compile(r"[\w.]*layers\.[\w.]*\*")
"""A glob that ends in its only star and names a layer: looked up instead of searched."""
_MOST_SEARCHED = 512


def check_patterns(patterns: tuple[str, ...]) -> str:
    """Return why a list of patterns is refused, or nothing."""
    searched = [p for p in patterns if p.startswith("re:") or "*" in p]
    others = [p for p in searched if not _LAYER_PREFIX.fullmatch(p)]
    if len(others) > _MOST_SEARCHED:
        return f"must hold at most {_MOST_SEARCHED} patterns, holds {len(others)}"
    return ""


def is_understood(pattern: str) -> bool:
    """Whether a pattern can be matched here; others are left out and lower the confidence."""
    return not pattern.startswith("re:") or _linear(pattern.removeprefix("re:")) is not None


@functools.lru_cache(maxsize=4096)
def _linear(pattern: str) -> str | None:
    """Return an expression that matches the same names in linear time, None when there is none.

    Patterns come with the request, and nested repeats would never end. Each `.*` becomes an
    atomic search for what follows; repeats of one class of characters become possessive.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return None
    parts = _STARS.sub(".*", _OR_BELOW.sub(r"(?:\\.|$)", pattern)).split(".*")
    first, *others = [_CLASS_REPEAT.sub(r"\1\2+", part) for part in parts]
    bare = "".join(_HARMLESS.sub("", part) for part in (first, *others))
    if _REPEAT.search(bare) or bare.count("?") > _MOST_OPTIONS:
        return None
    linear = first + "".join(_searched(part) for part in others)
    try:
        for part in (first, *others, linear):
            re.compile(part)
    except (re.error, OverflowError, RecursionError):
        return None
    return linear


def _searched(part: str) -> str:
    """Return the search for a part; one that ends the name is looked for from the end."""
    if not part:
        return ".*"
    return f".*{part}" if part.endswith("$") else f"(?>.*?(?:{part}))"


_LONGEST_PATTERN = 2_000
_CLASS_REPEAT = re.compile(r"(\\[dw]|\[[^\]]*\])([+*])(?![+?])")
_HARMLESS = re.compile(r"(\\[dw]|\[[^\]]*\])[+*]\+|\\.|\[[^\]]*\]|\(\?:")
_REPEAT = re.compile(r"[*+{]")
_OR_BELOW = re.compile(r"\((?:\?:)?\\\.\.\*\)\?\$?$")
_MOST_OPTIONS = 4
"""Each optional piece may double the ways to match."""
_STARS = re.compile(r"(?:\.\*)+")


_STEMS = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "backbone.",
    "model.",
)


def _bare(name: str) -> str:
    """Return a module's name without what wraps the language model."""
    for stem in _STEMS:
        if name.startswith(stem):
            return name[len(stem) :]
    return name


def _parts(name: str) -> Iterator[str]:
    """Yield every run of whole components of a dotted name."""
    words = name.split(".")
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield ".".join(words[start:end])


def _variants(bare: str) -> tuple[str, ...]:
    """Return the names that checkpoints give this module below the stem."""
    return (bare, *(bare.replace(ours, theirs) for ours, theirs in _RENAMED if ours in bare))


_RENAMED = ((".mlp.", ".block_sparse_moe."), (".mlp.", ".mixer."), (".self_attn.", ".mixer."))
