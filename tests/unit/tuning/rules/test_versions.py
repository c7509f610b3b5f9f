"""Which releases are said to have code for an architecture, and how surely."""

import pytest

from service.tuning.engine.versions import EngineVersion, known_releases
from service.tuning.models.hf_config import FAMILIES
from service.tuning.rules.package_data import read_rules_data
from tests.unit.tuning.rules.builders import GPT_OSS, findings, situation

_ENTRIES = read_rules_data("architectures")["architectures"]


@pytest.mark.parametrize(
    ("model", "release", "severity"),
    [
        (GPT_OSS, "0.10.0", "error"),
        ("Qwen/Qwen3-8B", "0.8.3", "warning"),
        ("zai-org/GLM-4.7-Flash", "0.14.1", "error"),
        ("zai-org/GLM-4.7-Flash", "0.15.0", "warning"),
    ],
)
def test_only_a_release_that_was_read_is_said_to_refuse(
    model: str, release: str, severity: str
) -> None:
    """What may still run, and releases that nobody looked into, are warned of and no more."""
    (found,) = findings(situation(model=model, release=release, planned=False), "VER008")

    assert found.severity == severity


@pytest.mark.parametrize(("release", "is_refused"), [("0.23.0", False), ("0.24.0", True)])
def test_a_removed_architecture_is_refused_after_its_last_release(
    release: str, *, is_refused: bool
) -> None:
    """Baichuan's code left vLLM after 0.23.0, which is what to use."""
    context = situation(model="baichuan-inc/Baichuan2-7B-Chat", release=release, planned=False)

    found = findings(context, "VER008")

    assert [finding.severity for finding in found] == ["error"] * is_refused
    assert all("0.23.0" in (finding.suggestion or "") for finding in found)


def test_every_listed_architecture_is_one_that_can_be_read() -> None:
    """An entry for a name that no config reader knows could never be used."""
    removed = read_rules_data("architectures")["removed"]

    assert {entry["name"] for entry in (*_ENTRIES, *removed)} <= set(FAMILIES)


def test_an_architecture_comes_after_the_last_release_without_it() -> None:
    """Both releases of an entry were read, in that order."""
    read = {version.text for version in known_releases()}

    for entry in _ENTRIES:
        assert {entry["absent_in"], entry["since"]} <= read, entry
        assert EngineVersion.of(entry["since"]) > EngineVersion.of(entry["absent_in"]), entry
