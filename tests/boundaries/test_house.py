"""Laws of the house that no linter sees."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FUNCTION_LINES = 60


def _tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", *patterns],  # noqa: S607  # git from the path
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in done.stdout.split("\n") if name]


def test_the_lock_has_hashes_and_no_index_address() -> None:
    """Every locked dependency is pinned with hashes, and no line names an index."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if "==" in line and not line.startswith(" ")]

    assert len(pins) > 50
    assert not [line for line in lines if "://" in line or line.startswith("--")]
    assert sum("--hash=sha256:" in line for line in lines) >= len(pins)


@pytest.mark.parametrize("package", ["api_schemas", "service", "workers"])
def test_functions_stay_readable(package: str) -> None:
    """No function is longer than a screen."""
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in _tracked(f"{package}/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno > MAX_FUNCTION_LINES
    ]

    assert not long


def test_the_core_reads_nothing_but_package_data() -> None:
    """No module of the core opens a file by path or asks the clock of the day."""
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in _tracked("service/tuning/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if _opens_or_asks(node)
    ]

    assert not offenders


def _opens_or_asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
        # A pure path is text with slashes; it cannot reach a file.
        is_pure = "PurePath" in names
        return not is_pure and bool(names & {"pathlib", "shutil", "tempfile", "datetime"})
    if not isinstance(node, ast.Call):
        return False
    return "open" in {getattr(node.func, "id", None), getattr(node.func, "attr", None)}
