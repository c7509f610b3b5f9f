"""What importing a package may drag in."""

import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

OURS = ("api_schemas", "service", "workers")


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", OURS)
def test_nobody_else_provides_our_import_names(package: str) -> None:
    """No other distribution ships a package under one of our three import names."""
    # An editable install of our own is not listed; anybody else would be.
    assert set(packages_distributions().get(package, ())) <= {"setpoint"}


def test_the_nouns_need_only_msgspec() -> None:
    """Importing the nouns loads neither the core nor any third-party package but msgspec."""
    loaded = _modules_after("import api_schemas.recommendation")

    assert not loaded & {"service", "workers", "numpy", "litestar", "redis", "yaml"}


def test_the_core_loads_no_framework_and_no_network() -> None:
    """Importing the use cases loads no web framework, no store, no HTTP client."""
    loaded = _modules_after("import service.tuning.estimate, service.tuning.recommend")

    assert not loaded & {"litestar", "redis", "rq", "httpx", "uvicorn", "structlog", "vllm"}


def test_workers_load_neither_the_web_framework_nor_vllm() -> None:
    """Importing the workers loads no Litestar and no vLLM."""
    loaded = _modules_after("import workers")

    assert not loaded & {"litestar", "vllm", "service.api"}


def test_the_command_line_starts_without_the_service() -> None:
    """Loading the command loads no web framework and no compiler."""
    loaded = _modules_after("import service.cli.main")

    assert not loaded & {"litestar", "uvicorn", "numba", "rq"}
