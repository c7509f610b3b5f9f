"""What people reported, asked of the gate: as files and commands, in the words they used."""

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api_schemas.check import CheckReport, CheckRequest
from service.tuning.check import check
from service.tuning.engine.argv import setting_argv
from service.tuning.engine.versions import parse_version
from service.tuning.errors import InvalidRequest

Json = dict[str, Any]
_DATA = Path(__file__).parent / "data"
_TODAY = "2026-06-15"
_CATEGORIES = frozenset(
    {
        "removed-flag",
        "version-regression",
        "config-syntax",
        "quant-tp-invalid",
        "parallelism-invalid",
        "batched-tokens-validation",
        "quant-mismatch",
        "enforce-eager",
        "cpu-offload",
        "fp8-kv-hardware",
        "dtype-hardware",
        "kernel-hardware",
        "mm-budget",
        "hybrid-kv",
        "k8s-docker",
    }
)


def _cases(name: str) -> list[Json]:
    lines = (_DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _checks(cases: list[Json]) -> list[Any]:
    return [
        pytest.param(one["request"], one["expect"], id=f"{case['id']}-{number}")
        for case in cases
        for number, one in enumerate(case["checks"])
    ]


_OF_RULES = [case for case in _cases("user_cases") if case["category"] in _CATEGORIES]


def _flag(name: str, value: Any, release: str | None) -> list[str]:  # noqa: ANN401  # any value
    """Return a setting the way people type it, known to the release or not."""
    try:
        return setting_argv(name, value, parse_version(release))
    except InvalidRequest:
        pass
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else f"--no-{name.replace('_', '-')}"]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]


def _as_command(request: Json) -> Json:
    """Return a what-if as the command that would start it, and the rest of the request."""
    engine = dict(request.get("engine", {}))
    settings, release = engine.pop("config", {}), engine.get("version")
    env = [f"{name}={value}" for name, value in engine.pop("env", {}).items()]
    model = request.get("model", {}).get("id", "some/model")
    words = [model, *(word for n, v in settings.items() for word in _flag(n, v, release))]
    rest = {key: value for key, value in request.items() if key != "engine"}
    command = " ".join([*map(shlex.quote, env), "vllm serve", *map(shlex.quote, words)])
    return {**rest, "engine": engine, "command": command}


def _report(request: Json) -> CheckReport:
    return check(msgspec.convert(request, CheckRequest), today=_TODAY)


def _matches(finding: Json, expected: Json) -> bool:
    return (
        finding["rule"] == expected["rule"]
        and finding["severity"] == expected["severity"]
        and expected.get("suggests", "") in finding.get("suggestion", "")
        and expected.get("setting", finding.get("setting")) == finding.get("setting")
        and expected.get("line") in {None, finding.get("location", {}).get("line")}
    )


@pytest.mark.parametrize(("request_", "expect"), _checks(_OF_RULES))
def test_commands_get_the_findings_of_the_case(request_: Json, expect: Json) -> None:
    """Typed as a command, each case of these categories gets the finding that settles it."""
    report = msgspec.to_builtins(_report(_as_command(request_)))
    found = [(f["rule"], f["severity"], f.get("suggestion")) for f in report["findings"]]

    for expected in expect.get("finds", []):
        assert any(_matches(finding, expected) for finding in report["findings"]), found
    for rule in expect.get("absent", []):
        assert rule not in {finding["rule"] for finding in report["findings"]}, found
    if "fits" in expect:
        assert report["engines"][0]["fits"] is expect["fits"], found


@pytest.mark.parametrize(("request_", "expect"), _checks(_cases("gate_cases")))
def test_files_get_the_findings_of_the_case(request_: Json, expect: Json) -> None:
    """Files and commands as reported get finding, place, suggestion and correction."""
    report = msgspec.to_builtins(_report(request_))
    found = [(f["rule"], f["severity"], f.get("setting")) for f in report["findings"]]

    for expected in expect.get("finds", []):
        assert any(_matches(finding, expected) for finding in report["findings"]), found
    assert not set(expect.get("absent", [])) & {rule for rule, _, _ in found}
    moved = {setting for rule, _, setting in found if rule == "UPG001"}
    assert not set(expect.get("same_defaults", [])) & moved
    fixed = "".join(file["content"] for file in report["fixed_files"])
    assert expect.get("fixed_has", "") in fixed
    if "fixed_lacks" in expect:
        assert fixed
        assert expect["fixed_lacks"] not in fixed
    assert expect.get("verdict", report["verdict"]) == report["verdict"]


def test_all_categories_of_the_gate_are_there() -> None:
    """Every category that the gate answers for has cases with sources."""
    cases = [*_OF_RULES, *_cases("gate_cases")]

    assert {case["category"] for case in cases} == _CATEGORIES
    assert len({case["id"] for case in cases}) >= 45
    assert all(case["source"]["repo"] and case["source"]["thread"] for case in cases)
