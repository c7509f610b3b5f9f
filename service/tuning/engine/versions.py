"""vLLM releases: how they are written, ordered, and which of them are known."""

from functools import cache
from typing import Self

import msgspec
from packaging.version import InvalidVersion, Version

from service.tuning.engine.package_data import read_facts
from service.tuning.errors import UnknownEngineVersion

POINTER = "/engine/version"
_PARTS = 3


class EngineVersion(msgspec.Struct, frozen=True, order=True):
    """A vLLM release, ordered by major, minor and patch number."""

    release: tuple[int, int, int]
    text: str
    """As vLLM writes it, without a leading v or a local part: 0.9.0.1, 0.11.0rc1."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the version written as `text`; the range of known releases is not checked."""
        parsed = Version(text)
        if parsed.epoch:
            raise InvalidVersion(text)
        major, minor, patch = (*parsed.release, 0, 0)[:3]
        is_short = len(parsed.release) < _PARTS
        written = f"{major}.{minor}.{patch}" if is_short else parsed.public
        return cls(release=(major, minor, patch), text=written)

    @property
    def is_legacy(self) -> bool:
        """Whether it is older than 0.8, where the V1 engine became the default."""
        return self.release < OLDEST_SUPPORTED.release

    def since(self, text: str) -> bool:
        """Whether this release is `text` or newer."""
        return self.release >= _release(text)


@cache
def _release(text: str) -> tuple[int, int, int]:
    return EngineVersion.of(text).release


OLDEST_SUPPORTED = EngineVersion.of("0.8.0")
"""Older releases are answered with low confidence: another engine, few measurements."""


@cache
def known_releases() -> tuple[EngineVersion, ...]:
    """Return the releases whose source was read, oldest first."""
    return tuple(EngineVersion.of(text) for text in read_facts("versions")["inspected"])


OLDEST = known_releases()[0]
NEWEST = known_releases()[-1]
SUPPORTED = tuple(version for version in known_releases() if not version.is_legacy)
"""Read releases from 0.8.0 on; patch releases between them are accepted as well."""


def parse_version(text: str | None) -> EngineVersion:
    """Return the release written as `text` (0.10.2, v0.10.2, 0.8.5.post1); None is the newest.

    Raises:
        UnknownEngineVersion: `text` is no version, or outside what is known.
    """
    if text is None:
        return NEWEST
    try:
        version = EngineVersion.of(text)
    except InvalidVersion:
        raise _unknown(text) from None
    too_new = version.release[:2] > NEWEST.release[:2]
    if too_new or version.release < OLDEST.release:
        raise _unknown(text)
    return version


def _unknown(text: str) -> UnknownEngineVersion:
    newest = f"{NEWEST.release[0]}.{NEWEST.release[1]}.x"
    return UnknownEngineVersion(
        f"vLLM {text[:32]} is not known: releases from {OLDEST_SUPPORTED.text} to {newest} are"
        f" supported, older ones back to {OLDEST.text} are answered with low confidence",
        pointer=POINTER,
    )
