"""What people reported, settled by the answer alone: each case with its public source."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.workload import Workload
from service.tuning.engine.versions import parse_version
from service.tuning.estimate import estimate
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext

Json = dict[str, Any]
_DATA = Path(__file__).parent / "data" / "user_cases.jsonl"
_CASES = [json.loads(line) for line in _DATA.read_text(encoding="utf-8").splitlines()]
_SEVERITIES = ("note", "warning", "error")
_LEAST_CASES = 45


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Findings, and the estimate where model and hardware are named."""

    findings: list[Finding]
    estimate: Estimate | None


def _answer(request: Json) -> Answer:
    """Return the estimate, or what the rules say where the case names no model."""
    if "model" in request and "hardware" in request:
        whole = msgspec.convert(request, EstimateRequest)
        estimated = estimate(whole)
        return Answer(findings=estimated.findings, estimate=estimated)
    engine = msgspec.convert(request.get("engine", {}), Engine)
    config = engine.config or EngineConfig()
    hardware, workload = request.get("hardware"), request.get("workload")
    context = RuleContext(
        version=parse_version(engine.version),
        given=config,
        effective=config,
        node=resolve_hardware(msgspec.convert(hardware, Hardware))[0] if hardware else None,
        workload=msgspec.convert(workload, Workload) if workload else None,
        env=engine.env or {},
    )
    return Answer(findings=check_rules(context), estimate=None)


_CHECKS = [
    pytest.param(check["request"], check["expect"], id=f"{case['id']}-{number}")
    for case in _CASES
    for number, check in enumerate(case["checks"])
]
_RANGES = ("largest_max_model_len", "max_model_len", "kv_cache_tokens", "max_concurrency")


def _matching(findings: list[Finding], expected: Json) -> list[Finding]:
    return [
        finding
        for finding in findings
        if finding.rule == expected["rule"]
        and finding.severity == expected["severity"]
        and expected.get("suggests", "") in (finding.suggestion or "")
    ]


def _figure(answer: Answer, name: str) -> float:
    assert answer.estimate is not None
    assert answer.estimate.memory is not None
    return float(getattr(answer.estimate.memory, name))


@pytest.mark.parametrize(("request_", "expect"), _CHECKS)
def test_answer_settles_the_case(request_: Json, expect: Json) -> None:
    """The answer says what the thread found out: verdict, cause, remedy, figures."""
    answer = _answer(request_)
    found = [(finding.rule, finding.severity, finding.suggestion) for finding in answer.findings]

    for expected in expect.get("finds", []):
        assert _matching(answer.findings, expected), (expected, found)
    for rule in expect.get("absent", []):
        assert rule not in {finding.rule for finding in answer.findings}, found
    if "no_worse_than" in expect:
        worst = _SEVERITIES.index(expect["no_worse_than"])
        assert all(_SEVERITIES.index(f.severity) <= worst for f in answer.findings), found
    if "never_suggests" in expect:
        assert all(expect["never_suggests"] not in (f.suggestion or "") for f in answer.findings)
    if "fits" in expect:
        assert answer.estimate is not None
        assert answer.estimate.fits is expect["fits"], found
    if "defaults" in expect:
        assert answer.estimate is not None
        for name, value in expect["defaults"].items():
            assert getattr(answer.estimate.defaults_applied, name) == value


@pytest.mark.parametrize(("request_", "expect"), _CHECKS)
def test_figures_agree_with_the_case(request_: Json, expect: Json) -> None:
    """Lengths, cache sizes and bytes per token lie where the thread saw them."""
    names = [name for name in _RANGES if name in expect]
    if not names and "kv_bytes_per_token" not in expect:
        return
    answer = _answer(request_)

    for name in names:
        low, high = expect[name]
        assert low <= _figure(answer, name) <= high, (name, _figure(answer, name))
    if "kv_bytes_per_token" in expect:
        assert _figure(answer, "kv_bytes_per_token") == expect["kv_bytes_per_token"]


def test_cases_are_many_and_have_sources() -> None:
    """At least 45 reports, each with repository and thread, over most kinds of trouble."""
    assert len(_CASES) >= _LEAST_CASES
    assert len({case["category"] for case in _CASES}) >= 30
    for case in _CASES:
        assert case["source"]["repo"]
        assert case["source"]["thread"]
        assert case["says"]
