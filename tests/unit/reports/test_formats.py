"""The formats: valid for their readers, and agreeing with the verdict."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import msgspec
import pytest
import yaml

from api_schemas.check import CheckReport, Policy, Waiver
from service.reports.formats import FORMATS
from service.reports.schemas import json_schema
from service.reports.text import render_coloured_text
from tests.unit.tuning.lint.asked import TODAY, checked

_SCHEMA = json.loads(
    (Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8")
)
_NASTY = "vllm serve Qwen/Qwen3-8B --swap-space 4 \\\n --no,such:flag% '\x1b[31m]]>&<\x08' -tp 3\n"


@pytest.fixture(params=["sound", "broken", "waived", "nothing"])
def report(request: pytest.FixtureRequest) -> CheckReport:
    """Return reports of every verdict, one with text made to break formats."""
    waiver = Waiver(rule="VER001", until=TODAY, reason="known")
    match request.param:
        case "sound":
            return checked("a/serve.sh", "vllm serve Qwen/Qwen3-8B")
        case "broken":
            return checked("a b/ö.sh", _NASTY)
        case "waived":
            policy = Policy(waivers=[waiver])
            return checked("a.sh", "vllm serve m --swap-space 4", policy=policy)
        case _:
            return checked("a.sh", "ls")


def test_json_is_the_report(report: CheckReport) -> None:
    """It decodes to the same report, with sorted findings and no NaN."""
    text = FORMATS["json"].render(report)

    assert msgspec.json.decode(text, type=CheckReport) == report
    assert "NaN" not in text


def test_json_keeps_its_published_schema(report: CheckReport) -> None:
    """What is printed is valid for the schema that the same program prints."""
    schema = json.loads(json_schema("report"))
    jsonschema.Draft202012Validator.check_schema(schema)

    jsonschema.Draft202012Validator(schema).validate(json.loads(FORMATS["json"].render(report)))


def test_the_example_policy_keeps_its_schema() -> None:
    """The policy of examples/ci is valid for the published schema."""
    example = Path(__file__).parents[3] / "examples" / "ci" / "setpoint.yaml"
    schema = json.loads(json_schema("policy"))

    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(example.read_text()))


def test_sarif_is_valid(report: CheckReport) -> None:
    """The schema of SARIF 2.1.0 accepts it; rules and results agree."""
    log = json.loads(FORMATS["sarif"].render(report))

    jsonschema.Draft4Validator(_SCHEMA).validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(report.findings) + len(report.waived)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    marks = [r["partialFingerprints"]["setpoint/v1"] for r in run["results"] if "partial" in str(r)]
    assert len(marks) == len(set(marks)) == len(report.findings)


def test_junit_fails_exactly_when_the_policy_fails(report: CheckReport) -> None:
    """Failures are what the policy fails, waived and inconclusive ones are skipped."""
    root = ET.fromstring(FORMATS["junit"].render(report))  # noqa: S314  # our own

    assert root.tag == "testsuites"
    assert (root.find(".//failure") is not None) is (report.verdict == "fail")
    for suite in root:
        assert int(suite.get("tests", "0")) == len(suite)
        assert int(suite.get("failures", "0")) == len(suite.findall("testcase/failure"))
        assert all(case.get("name") and case.get("classname") for case in suite)
    assert (root.find(".//skipped") is not None) is (
        bool(report.waived) or report.verdict == "inconclusive"
    )


def test_markdown_tables_keep_their_columns(report: CheckReport) -> None:
    """No text of a file can add a cell, a line or a tag."""
    lines = FORMATS["markdown"].render(report).splitlines()

    for line in lines:
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == 6
    assert not any("<" in line.replace("\\<", "") for line in lines)


def test_github_commands_are_one_line_each(report: CheckReport) -> None:
    """Percent signs, commas, colons and line ends are escaped as the runner decodes them."""
    lines = FORMATS["github"].render(report).splitlines()

    assert len(lines) == len(report.findings) + 1
    for line in lines[:-1]:
        assert line.startswith(("::error ", "::warning ", "::notice "))
        properties = line.split("::")[1].partition(" ")[2]
        assert all("=" in part for part in properties.split(","))


def test_gitlab_issues_have_unique_fingerprints(report: CheckReport) -> None:
    """Each issue has what the merge request widget needs."""
    issues = json.loads(FORMATS["gitlab"].render(report))

    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == len(report.findings)
    for issue in issues:
        assert issue["severity"] in {"info", "minor", "major", "critical", "blocker"}
        assert issue["location"]["lines"]["begin"] >= 1


def test_text_never_steers_the_terminal(report: CheckReport) -> None:
    """Escape sequences of a file are shown, not obeyed; colours are ours alone."""
    plain = FORMATS["text"].render(report)

    assert "\x1b" not in plain
    assert plain.splitlines()[-1] == report.summary
    assert render_coloured_text(report).replace("\x1b", "") != plain


def test_fingerprints_stay_when_lines_move() -> None:
    """Two empty lines above change the place of a finding, not its fingerprint."""
    command = "vllm serve m --swap-space 4 --nonsense 1\n"
    here, lower = checked("a.sh", command), checked("a.sh", "\n\n" + command)

    assert here.fingerprints == lower.fingerprints
    assert here.findings != lower.findings
