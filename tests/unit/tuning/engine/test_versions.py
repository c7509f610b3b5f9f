"""vLLM releases: spelling, order, what is known."""

import pytest

from service.tuning.engine.versions import NEWEST, SUPPORTED, EngineVersion, parse_version
from service.tuning.errors import UnknownEngineVersion


@pytest.mark.parametrize(
    ("text", "release", "written"),
    [
        ("0.33.0", (0, 33, 0), "0.33.0"),
        ("v0.10.2", (0, 10, 2), "0.10.2"),
        ("0.11.0rc1", (0, 11, 0), "0.11.0rc1"),
        ("0.9.0.1", (0, 9, 0), "0.9.0.1"),
        ("0.8.5.post1", (0, 8, 5), "0.8.5.post1"),
        ("0.32.0+cpu", (0, 32, 0), "0.32.0"),
        ("0.33", (0, 33, 0), "0.33.0"),
        ("0.33.4", (0, 33, 4), "0.33.4"),
    ],
)
def test_a_version_is_read_as_vllm_writes_it(
    text: str, release: tuple[int, int, int], written: str
) -> None:
    """A leading v and a local part are dropped; everything else of the spelling stays."""
    version = parse_version(text)

    assert version.release == release
    assert version.text == written


def test_no_version_means_the_newest() -> None:
    """A request without a version is answered for the newest known release."""
    assert parse_version(None) == NEWEST == EngineVersion.of("0.33.0")


@pytest.mark.parametrize("text", ["0.40", "0.34.0", "1.0.0", "0.2.6", "latest", "0.8.x", "1!0.9.0"])
def test_an_unknown_version_names_the_range(text: str) -> None:
    """What is newer, older or no version at all is refused with the range that is known."""
    with pytest.raises(UnknownEngineVersion) as refusal:
        parse_version(text)

    assert refusal.value.pointer == "/engine/version"
    assert "0.8.0 to 0.33.x" in refusal.value.message


def test_numbers_order_versions() -> None:
    """0.10 comes after 0.9, which a comparison of texts would get wrong."""
    assert EngineVersion.of("0.9.2") < EngineVersion.of("0.10.0")
    assert parse_version("0.10.0").since("0.9.2")
    assert not parse_version("0.9.2").since("0.10.0")


def test_versions_before_the_second_engine_are_legacy() -> None:
    """Releases before 0.8 are known but answered with low confidence."""
    assert parse_version("0.6.6.post1").is_legacy
    assert not parse_version("0.8.0").is_legacy
    assert all(not version.is_legacy for version in SUPPORTED)
