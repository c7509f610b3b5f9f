"""The files that the page is made of: built from the sources beside them, and nothing else."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.make_openapi import make_openapi

ROOT = Path(__file__).parents[2]
WEB = ROOT / "service" / "portal" / "web"
STATIC = ROOT / "service" / "portal" / "static"


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.browser
def test_a_rebuild_gives_the_same_bytes(web_tools: Path, tmp_path: Path) -> None:
    """What is committed is what the sources and the lock file build."""
    node = shutil.which("node")
    assert node is not None
    subprocess.run(
        [node, "build.mjs", str(tmp_path / "static")], cwd=web_tools, check=True, timeout=120
    )

    assert _digests(tmp_path / "static") == _digests(STATIC)


@pytest.mark.browser
def test_the_types_are_those_of_the_document(web_tools: Path, tmp_path: Path) -> None:
    """The page's types are what the API's document of this very version generates."""
    node = shutil.which("node")
    assert node is not None
    subprocess.run(
        [node, "types.mjs", str(tmp_path / "openapi.d.ts")],
        cwd=web_tools,
        input=make_openapi(),
        check=True,
        timeout=120,
    )

    made = (tmp_path / "openapi.d.ts").read_text()
    assert made == (WEB / "src" / "openapi.d.ts").read_text(), "run `make portal` and commit"


@pytest.mark.browser
def test_the_sources_are_typed(web_tools: Path) -> None:
    """The compiler finds no mistake in the page's sources."""
    done = subprocess.run(
        [str(web_tools / "node_modules" / ".bin" / "tsc"), "--noEmit"],
        cwd=web_tools,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout


def test_the_page_needs_no_other_host() -> None:
    """No built file loads anything from elsewhere; the only addresses are names of namespaces."""
    addresses = {
        address
        for path in STATIC.iterdir()
        if path.suffix in {".html", ".css", ".js", ".svg"}
        for address in re.findall(r"https?://[^\s\"'`)>]+", path.read_text())
    }

    assert {re.sub(r"^https?://www\.w3\.org/.*", "w3", address) for address in addresses} <= {"w3"}


def test_the_page_has_no_inline_script_or_style() -> None:
    """The page runs under a policy that allows its own files alone."""
    page = (STATIC / "index.html").read_text()

    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)


def test_every_bundled_package_brings_its_licence() -> None:
    """The licences of all packages in the bundle are shipped with it."""
    licences = (STATIC / "licences.txt").read_text()

    for package in ("preact", "d3-scale", "d3-array", "d3-interpolate"):
        assert re.search(rf"^{package} \d+\.\d+\.\d+ \((MIT|ISC)\)$", licences, re.MULTILINE)


def test_the_lock_file_names_hashes_and_no_registry() -> None:
    """Every locked package has a hash, and none an address."""
    lock = (WEB / "package-lock.json").read_text()

    assert '"resolved"' not in lock
    assert lock.count('"integrity"') >= lock.count('"node_modules/')
