"""What the built wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_holds_three_packages_with_their_data(wheel: zipfile.ZipFile) -> None:
    """The wheel carries our three packages, their data and type markers, and no tests."""
    names = wheel.namelist()
    tops = {name.split("/")[0] for name in names}

    assert {"api_schemas", "service", "workers"} <= tops
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "api_schemas",
        "service",
        "workers",
    }
    for package in ("api_schemas", "service", "workers"):
        assert f"{package}/py.typed" in names
    tracked = subprocess.run(
        ["git", "ls-files", "service/**/data/*"],  # noqa: S607  # git from the path
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert tracked
    assert set(tracked) <= set(names)


def test_the_wheel_holds_the_page_and_not_its_sources(wheel: zipfile.ZipFile) -> None:
    """The built page travels in the wheel; what it was built from and with stays outside."""
    names = wheel.namelist()
    built = {path.name for path in (ROOT / "service/portal/static").iterdir()}

    assert {f"service/portal/static/{name}" for name in built} <= set(names)
    assert not [name for name in names if name.startswith("service/portal/web")]
