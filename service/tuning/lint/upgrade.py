"""What an upgrade changes: refusals that are new or settled, defaults that differ."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

import msgspec

from api_schemas.base import Json
from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding, Location
from service.tuning.engine.argv import setting_argv
from service.tuning.engine.batch_limits import Usage
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.versions import EngineVersion
from service.tuning.errors import InvalidRequest
from service.tuning.hardware.spec import Node
from service.tuning.lint.findings import gate_finding
from service.tuning.models.spec import ModelSpec

_COMPARED = (
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "async_scheduling",
    "max_cudagraph_capture_size",
    "block_size",
    "kv_cache_dtype",
    "dtype",
)


_REFUSALS = ("VER", "CLI", "KVC", "QNT", "DTY", "SCH", "SPC", "LOR")
"""Rules of what a release takes; whether something fits also hangs on what is estimated."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From one release to another, with the settings that go along."""

    old: EngineVersion
    new: EngineVersion
    given: EngineConfig
    spec: ModelSpec | None
    node: Node | None
    location: Location
    usage: Usage = "serve"


def with_history(
    findings: Sequence[Finding], before: Sequence[Finding], step: Step
) -> list[Finding]:
    """Return findings of the new release; errors that the old one lacks say so."""
    known = {(finding.rule, finding.setting) for finding in before if finding.severity == "error"}
    told = []
    for finding in findings:
        is_refusal = finding.severity == "error" and finding.rule.startswith(_REFUSALS)
        if is_refusal and (finding.rule, finding.setting) not in known:
            message = f"{finding.message} New with this upgrade: vLLM {step.old.text} takes it."
            told.append(msgspec.structs.replace(finding, message=message))
        else:
            told.append(finding)
    return told


def settled(
    findings: Sequence[Finding], before: Sequence[Finding], step: Step
) -> Iterator[Finding]:
    """Yield what was wrong on the old release and is not on the new one."""
    open_still = {(finding.rule, finding.setting) for finding in findings}
    for finding in before:
        if finding.severity == "error" and (finding.rule, finding.setting) not in open_still:
            yield gate_finding(
                "UPG002",
                f"Settled by vLLM {step.new.text}; with {step.old.text}: {finding.message}",
                setting=finding.setting,
                location=step.location,
            )


def changed_defaults(step: Step) -> Iterator[Finding]:
    """Yield settings that are left to vLLM and whose default differs between the releases."""
    told: set[str] = set()
    if step.spec is not None and step.node is not None:
        told = set(_COMPARED)
        yield from _compared(step, step.spec, step.node)
    for change in _facts()["changes"]:
        name = change["setting"]
        is_between = step.new.since(change["since"]) and not step.old.since(change["since"])
        is_given = getattr(step.given, name, None) is not None
        if is_between and not is_given and name not in told:
            yield gate_finding(
                "UPG001",
                f"{name} is left to vLLM, and its default changed in {change['since']}:"
                f" {change['was']} before, {change['becomes']} since.",
                suggestion="Measure again after the upgrade, or state the value you rely on.",
                setting=name,
                location=step.location,
            )


def _compared(step: Step, spec: ModelSpec, node: Node) -> Iterator[Finding]:
    def filled(version: EngineVersion) -> EngineConfig:
        return effective_config(step.given, spec=spec, node=node, version=version, usage=step.usage)

    before, after = filled(step.old), filled(step.new)
    for name in _COMPARED:
        was, becomes = getattr(before, name), getattr(after, name)
        if was != becomes and getattr(step.given, name) is None:
            yield gate_finding(
                "UPG001",
                f"{name} is left to vLLM: {_shown(was)} by default in {step.old.text},"
                f" {_shown(becomes)} in {step.new.text}.",
                suggestion=_keep(name, was, step.new),
                setting=name,
                location=step.location,
            )


def _keep(name: str, value: Json, version: EngineVersion) -> str:
    try:
        flag = " ".join(setting_argv(name, value, version))
    except InvalidRequest:
        flag = ""
    return f"To keep it: {flag}" if flag else "Measure again after the upgrade."


def _shown(value: Json) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


@cache
def _facts() -> Json:
    path = resources.files("service.tuning.lint") / "data" / "default_changes.json"
    return json.loads(path.read_text(encoding="utf-8"))
