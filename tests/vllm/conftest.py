"""One process with vLLM 0.33.0's own parser, shared by all tests that ask it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api_schemas.base import Json

HERE = Path(__file__).parent
VENV = HERE.parents[1] / ".venv-vllm"
Ask = Callable[..., dict[str, Json]]


@pytest.fixture(scope="session")
def ask() -> Iterator[Ask]:
    """Return a function that asks the real parser about one line."""
    if not list(VENV.glob("stamps/check.*")):
        pytest.skip("run tests/vllm/setup_parser.sh first")
    with subprocess.Popen(
        [str(HERE / "ask_parser.sh")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def ask_one(
            argv: list[str] | None = None, *, model: str | None = None, **other: Json
        ) -> dict[str, Json]:
            line: dict[str, Json] = dict(other) if argv is None else {"argv": argv}
            if model is not None:
                line["model_dir"] = str(VENV / "models" / model)
            print(json.dumps(line), file=requests, flush=True)
            return dict(json.loads(answers.readline()))

        yield ask_one
        requests.close()
