"""Secrets of webhooks."""

import base64
from pathlib import Path

import pytest

from service.webhooks.secrets import read_secret

_SECRET = b"0123456789abcdef01234567"


def test_a_secret_is_read_by_its_name(tmp_path: Path) -> None:
    """With the specification's prefix it is base64, without it the bytes themselves."""
    (tmp_path / "team").write_text("whsec_" + base64.b64encode(_SECRET).decode() + "\n")
    (tmp_path / "plain").write_text("plain text\n")

    assert read_secret("team", tmp_path) == _SECRET
    assert read_secret("plain", tmp_path) == b"plain text"


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_???"])
def test_what_is_no_secret_is_none(tmp_path: Path, text: str) -> None:
    """An empty or broken file signs nothing."""
    (tmp_path / "team").write_text(text)

    assert read_secret("team", tmp_path) is None
    assert read_secret("none", tmp_path) is None
    assert read_secret("team", None) is None


@pytest.mark.parametrize("name", ["../team", ".", "..", "a/b", ".hidden", "nul\0l"])
def test_a_secrets_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    """A reference is a file's name and nothing else."""
    (tmp_path / "team").write_text("secret")
    (tmp_path / ".hidden").write_text("secret")
    (tmp_path / "inner").mkdir()

    assert read_secret(name, tmp_path / "inner") is None
    assert read_secret(name, tmp_path) is None
