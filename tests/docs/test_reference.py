"""The documentation says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

from service.cli.main import cli
from service.problems import PROBLEMS
from service.settings import describe_settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_is_current() -> None:
    """docs/reference.md is what `make reference` writes."""
    command = [sys.executable, str(ROOT / "docs" / "make_reference.py"), "--check"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_the_accuracy_page_is_current() -> None:
    """docs/accuracy.md shows the tables that GET /accuracy answers."""
    command = [sys.executable, str(ROOT / "docs" / "make_accuracy.py"), "--check"]

    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_every_setting_that_the_readme_names_exists() -> None:
    """The README names no variable that the program does not read."""
    known = {name for name, _, _ in describe_settings()}

    assert set(re.findall(r"SETPOINT_[A-Z_]+[A-Z]", README)) <= known


def test_every_command_that_the_readme_names_exists() -> None:
    """The README names no `setpoint` command and no `make` target that does not exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))

    assert set(re.findall(r"(?:^|[`\s/])setpoint ([a-z]+)", README)) <= set(cli.commands)
    assert set(re.findall(r"\bmake ([a-z-]+)`", README)) <= targets


def test_every_problem_code_that_the_readme_names_exists() -> None:
    """The README names no problem code that the program does not have."""
    assert set(re.findall(r"/problems/([a-z-]+)", README)) <= set(PROBLEMS)
