"""`setpoint check` as pipelines run it: formats, exit codes, policies, folders."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli.check import check as command
from service.cli.documents import Refused

_BROKEN = "vllm serve Qwen/Qwen3-8B --swap-space 4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command, list(arguments), input=stdin, catch_exceptions=True)


@pytest.mark.parametrize(
    ("content", "arguments", "code"),
    [
        ("vllm serve Qwen/Qwen3-8B\n", (), 0),
        (_BROKEN, (), 1),
        (_BROKEN, ("--report-only",), 0),
        (_BROKEN, ("--engine-version", "0.10.2"), 0),
        ("ls\n", (), 3),
        ("vllm serve Qwen/Qwen3-8B\n", ("--require-measured", "30"), 3),
        ("vllm serve Qwen/Qwen3-8B\n", ("--format", "nonsense"), 2),
    ],
)
def test_the_exit_code_is_the_verdict(
    folder: Path, content: str, arguments: tuple[str, ...], code: int
) -> None:
    """0 pass, 1 fail, 2 usage, 3 inconclusive; report-only always passes."""
    (folder / "serve.sh").write_text(content)

    assert _run("serve.sh", *arguments).exit_code == code


def test_results_go_to_standard_output_in_the_chosen_format(folder: Path) -> None:
    """Standard output holds the report and nothing else; further reports go to files."""
    (folder / "serve.sh").write_text(_BROKEN)
    done = _run("serve.sh", "--json", "--report", "sarif=out.sarif", "--report", "junit=out.xml")

    assert json.loads(done.stdout)["verdict"] == "fail"
    assert json.loads((folder / "out.sarif").read_text())["version"] == "2.1.0"
    assert (folder / "out.xml").read_text().startswith("<?xml")


def test_a_folder_is_searched_and_standard_input_read(folder: Path) -> None:
    """Folders give every file that can hold a command; a dash is standard input."""
    (folder / "deploy").mkdir()
    (folder / "deploy" / "serve.sh").write_text(_BROKEN)
    (folder / "deploy" / "picture.png").write_bytes(b"\x89PNG")

    assert "deploy/serve.sh:1:" in _run("deploy").stdout
    assert _run("-", stdin=_BROKEN).exit_code == 1


def test_the_policy_of_the_folder_is_used(folder: Path) -> None:
    """setpoint.yaml gives hardware, targets and waivers without an option."""
    (folder / "serve.sh").write_text(_BROKEN)
    (folder / "setpoint.yaml").write_text(
        "hardware: {gpu: H100-SXM5-80GB}\n"
        "waivers:\n  - {rule: VER001, until: '2999-12-31', reason: planned, owner: team}\n"
        "  - {rule: CHK002, until: '2999-12-31', reason: planned}\n"
    )
    report = json.loads(_run("serve.sh", "--json").stdout)

    assert (report["verdict"], report["counts"]["waived"]) == ("pass", 2)
    assert report["engines"][0]["fits"] is not None


def test_a_missing_file_and_a_bad_policy_are_refused(folder: Path) -> None:
    """Both end with exit code 2 through the command's common way."""
    (folder / "p.yaml").write_text("fail_on: note\n")

    for arguments in (("nowhere.sh",), ("--command", "x", "--policy", "p.yaml")):
        assert isinstance(_run(*arguments).exception, Refused)


def test_schemas_are_printed() -> None:
    """The schemas of report and policy come from the program itself."""
    for name, title in (("report", "CheckReport"), ("policy", "PolicyFile")):
        schema = json.loads(_run("--schema", name).stdout)

        assert title in schema["$defs"]
