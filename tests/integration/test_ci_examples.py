"""The pipelines of examples/ci, run as far as that goes without a hosted service."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CI = ROOT / "examples" / "ci"
_BROKEN = "vllm serve Qwen/Qwen3-8B --swap-space 4\n"


def _yaml(path: Path) -> Any:  # noqa: ANN401  # any document
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _bash(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],  # noqa: S607  # bash from the path
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a folder with one broken script and one sound one."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "bad one.sh").write_text(_BROKEN)
    (tmp_path / "deploy" / "good.sh").write_text("vllm serve Qwen/Qwen3-8B\n")
    return tmp_path


def test_the_action_hands_over_every_input_as_a_variable() -> None:
    """Each input reaches the script through the environment, and the script reads it."""
    action = _yaml(ROOT / "action.yml")
    step = action["runs"]["steps"][-1]
    script = (CI / "github-check.sh").read_text(encoding="utf-8")

    assert action["runs"]["using"] == "composite"
    assert {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]} == set(step["env"].values())
    assert all(name in script for name in step["env"])
    assert "${{" not in step["run"]
    assert step["run"].endswith('examples/ci/github-check.sh"')


def test_the_action_annotates_summarises_and_fails(repository: Path) -> None:
    """Annotations on standard output, summary, outputs and result files; the verdict's code."""
    done = _bash(
        f"bash {CI / 'github-check.sh'}",
        repository,
        SETPOINT_PATHS="deploy",
        GITHUB_STEP_SUMMARY="summary.md",
        GITHUB_OUTPUT="output",
    )

    assert done.returncode == 1, done.stderr
    assert "::error file=deploy/bad one.sh,line=1" in done.stdout
    assert "VER001" in (repository / "summary.md").read_text()
    assert "verdict=fail" in (repository / "output").read_text()
    sarif = json.loads((repository / "setpoint-results" / "setpoint.sarif").read_text())
    assert sarif["runs"][0]["results"]


def test_the_action_can_begin_as_information_only(repository: Path) -> None:
    """With report-only the job passes and still says what it found."""
    done = _bash(f"bash {CI / 'github-check.sh'}", repository, SETPOINT_REPORT_ONLY="true")

    assert done.returncode == 0
    assert "::error" in done.stdout


def test_the_gitlab_job_writes_its_reports(repository: Path) -> None:
    """The script of the template makes the files that its artifacts name."""
    template = _yaml(CI / "gitlab-ci.yml")
    job = template["setpoint-check"]
    variables = {name: str(value) for name, value in template["variables"].items()}

    done = _bash("\n".join([*job["before_script"], *job["script"]]), repository, **variables)

    assert done.returncode == 1, done.stderr
    reports = job["artifacts"]["reports"]
    root = ET.fromstring((repository / reports["junit"]).read_text())  # noqa: S314  # our own
    assert root.find(".//failure") is not None
    assert json.loads((repository / reports["codequality"]).read_text())[0]["fingerprint"]


@pytest.mark.parametrize(("name", "code"), [("good.sh", 0), ("bad one.sh", 1), ("other.yaml", 0)])
def test_the_hook_stops_only_broken_commits(repository: Path, name: str, code: int) -> None:
    """Files without an engine pass, as hooks see every changed file."""
    (repository / "deploy" / "other.yaml").write_text("kind: Service\napiVersion: v1\n")
    (hook,) = _yaml(ROOT / ".pre-commit-hooks.yaml")
    command = " ".join([hook["entry"], *hook["args"]])

    done = _bash(f'{command} "deploy/{name}"', repository)

    assert done.returncode == code, done.stdout + done.stderr


def test_the_example_passes_its_policy() -> None:
    """The Deployment beside setpoint.yaml meets its targets and ceilings."""
    done = _bash("setpoint check deploy --json", CI)
    report = json.loads(done.stdout)

    assert done.returncode == 0, report["reasons"]
    assert report["engines"][0]["fits"] is True
    assert {outcome["verdict"] for outcome in report["estimate"]["slo"]} == {"met"}


def test_the_workflows_name_what_exists() -> None:
    """The GitHub example uses inputs and outputs of the action, the hook's id is the hook's."""
    action = _yaml(ROOT / "action.yml")
    workflow = _yaml(CI / "github-workflow.yml")
    steps = workflow["jobs"]["check"]["steps"]
    used = next(step for step in steps if step.get("id") == "setpoint")
    (hook,) = _yaml(ROOT / ".pre-commit-hooks.yaml")
    (repo,) = _yaml(CI / "pre-commit-config.yaml")["repos"]

    assert set(used["with"]) <= set(action["inputs"])
    assert "sarif" in action["outputs"]
    assert [entry["id"] for entry in repo["hooks"]] == [hook["id"]]
