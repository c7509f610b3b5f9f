"""The command line with inputs and outputs as shells hand them over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from api_schemas.recommendation import TuningRequest
from service.cli.documents import Refused, decode
from service.cli.exit_codes import CLOSED_PIPE
from service.cli.main import cli, main
from service.cli.recommend import recommend

_REQUEST = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "H100-SXM5-80GB"}}


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    """Return the path of a request."""
    path = tmp_path / "request.json"
    path.write_text(json.dumps(_REQUEST))
    return path


def test_files_that_cannot_be_written_are_one_line_and_exit_code_2(
    request_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that cannot be made is named; there is no stack trace."""
    arguments = ["recommend", "-f", str(request_file), "--write-files", str(request_file)]
    monkeypatch.setattr(sys, "argv", ["setpoint", *arguments])

    with pytest.raises(SystemExit) as stopped:
        main()

    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines() == [f"setpoint: {request_file}: File exists"]


@pytest.mark.parametrize("arguments", [["estimate"], ["recommend", "-f", "-"]])
def test_a_closed_standard_input_is_refused(arguments: list[str]) -> None:
    """Started without standard input, the command says so and exits with 2."""
    code = "from service.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "setpoint: standard input is closed\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["models"],
        ["rules", "--json"],
        ["--help"],
        ["estimate"],
        ["recommend", "-f", "-"],
        ["check", "-", "--format", "json"],
    ],
)
def test_a_reader_that_leaves_ends_the_command_quietly(arguments: list[str]) -> None:
    """Behind a closed pipe no command complains, or answers with a code that is a verdict."""
    code = "from service.cli.main import main; main()"
    reading, writing = os.pipe()
    os.close(reading)
    request = "vllm serve Qwen/Qwen3-8B" if arguments[0] == "check" else json.dumps(_REQUEST)

    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            input=request.encode(),
            stdout=closed,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (done.returncode, done.stderr.decode()) == (CLOSED_PIPE, "")


def test_a_byte_order_mark_is_no_part_of_the_request() -> None:
    """Requests saved by editors that mark UTF-8 are read like others."""
    assert decode(b"\xef\xbb\xbf[1]", list[int]) == [1]


def test_a_mistake_in_a_request_names_what_is_allowed() -> None:
    """The command line says as much as the service does: the field, and its choices."""
    body = b'{"model": {"id": "a"}, "hardware": {"gpu": "L4"}, "workload": {"preset": "chatt"}}'

    with pytest.raises(Refused, match=r"/workload/preset: .*allowed: .*chat"):
        decode(body, TuningRequest)


def test_what_does_not_fit_has_a_record_too(request_file: Path) -> None:
    """The decision record of an infeasible request says why, and the exit code is 1."""
    request_file.write_text(json.dumps(_REQUEST | {"hardware": {"gpu": "T4"}}))
    done = CliRunner().invoke(recommend, ["-f", str(request_file), "--format", "markdown"])

    assert done.exit_code == 1
    assert done.output.startswith("# Qwen/Qwen3-8B on 1 x T4 cannot do this")
    assert "vllm serve" not in done.output


def test_gpus_are_found_by_any_of_their_names() -> None:
    """A cloud's instance leads to its part; that nothing is found is said beside the table."""
    cloud = CliRunner().invoke(cli, ["gpus", "p5.48xlarge"])
    nothing = CliRunner().invoke(cli, ["gpus", "no", "such"])

    assert "H100-SXM5-80GB" in cloud.stdout
    assert "none has no and such" in nothing.stderr


def test_tables_keep_brackets_and_are_wide_in_files(request_file: Path) -> None:
    """A name in brackets is no markup, and a list sent to a file has one line per row."""
    part = {"memory_gib": 80, "bandwidth_gb_s": 2000, "bf16_tflops": 300}
    hardware = {"gpu": "lab [bold] [/x]", "spec": part | {"compute_capability": "9.0"}}
    request_file.write_text(json.dumps(_REQUEST | {"hardware": hardware}))

    assert "lab [bold] [/x]" in CliRunner().invoke(recommend, ["-f", str(request_file)]).output
    listed = CliRunner().invoke(cli, ["gpus", "T4"]).output.splitlines()
    assert [line for line in listed if "Tesla T4" in line and "Turing" in line]
