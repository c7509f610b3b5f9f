"""An engine's settings judged: by the rules alone, or with an estimate on the hardware."""

import msgspec

from api_schemas.check import CheckRequest
from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import Estimate, EstimateRequest
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef
from api_schemas.slo import Slo, TargetOutcome
from service.tuning.calibrations.known import Calibrations
from service.tuning.engine.batch_limits import Usage
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.lint.findings import gate_finding
from service.tuning.lint.interpret import Interpreted
from service.tuning.models.spec import ModelSpec
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext
from service.tuning.situation import ModelResolver


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """What all engines of a request are judged by."""

    request: CheckRequest
    resolve_model: ModelResolver
    calibrations: Calibrations = ()
    """What was learned from measurements of these configurations."""
    is_by_rules_alone: bool = False
    """Nothing is said about memory, whatever hardware is named."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the hardware of one engine, as far as they are known, and how it is used."""

    model: ModelRef | None
    spec: ModelSpec | None
    hardware: Hardware | None
    usage: Usage = "serve"


def judge_settings(
    read: Interpreted,
    subject: Subject,
    version: EngineVersion,
    judging: Judging,
    *,
    with_load: bool = True,
) -> tuple[list[Finding], Estimate | None]:
    """Return findings of rules, with the estimate's where model and hardware are known.

    Without the load only memory is estimated.
    """
    request = judging.request
    given = request.engine.env if request.engine is not None and request.engine.env else {}
    env = {**given, **read.env}
    config = _with_stated(read.config, request)
    model, spec, hardware = subject.model, subject.spec, subject.hardware
    if model is None or spec is None or hardware is None:
        context = RuleContext(
            version=version,
            given=config,
            effective=config,
            spec=spec,
            node=None if hardware is None else resolve_hardware(hardware)[0],
            workload=request.workload,
            slo=request.slo,
            env=env,
        )
        return check_rules(context), None
    asked = EstimateRequest(
        model=model,
        hardware=hardware,
        engine=Engine(version=version.text, config=config, env=env),
        workload=request.workload if with_load else None,
        slo=_slo(request) if with_load else None,
    )
    # The simulation compiles code when it is imported: checks without hardware need none of it.
    from service.tuning.estimate import estimate  # noqa: PLC0415

    answer = estimate(
        asked,
        resolve_model=judging.resolve_model,
        calibrations=judging.calibrations,
        usage=subject.usage,
    )
    return [*answer.findings, *_missed(answer)], answer


def _with_stated(config: EngineConfig, request: CheckRequest) -> EngineConfig:
    """Return the file's settings over those that the request states for all."""
    stated = request.engine.config if request.engine is not None else None
    if stated is None:
        return config
    return msgspec.convert(
        {**msgspec.to_builtins(stated), **msgspec.to_builtins(config)}, EngineConfig
    )


def _slo(request: CheckRequest) -> Slo | None:
    """Return the targets of request and policy together."""
    policy = request.policy
    if policy is None or (not policy.targets and policy.max_preemptions_per_request is None):
        return request.slo
    slo = request.slo or Slo()
    limit = policy.max_preemptions_per_request
    return msgspec.structs.replace(
        slo,
        targets=[*slo.targets, *(t for t in policy.targets if t not in slo.targets)],
        max_preemptions_per_request=slo.max_preemptions_per_request if limit is None else limit,
    )


def _missed(answer: Estimate) -> list[Finding]:
    return [_outcome_finding(outcome) for outcome in answer.slo if outcome.verdict != "met"]


def _outcome_finding(outcome: TargetOutcome) -> Finding:
    target = outcome.target
    name = str(target["metric"])
    if outcome.predicted_ms is not None:
        what = f"{name} p{target['percentile']}".replace("pmean", "mean")
        text = f"{what} is predicted at {outcome.predicted_ms:g} ms, the limit is"
        text += f" {target['limit_ms']:g} ms."
    else:
        text = f"{name} is predicted at {outcome.predicted:g}, the limit is {target['limit']:g}."
    is_missed = outcome.verdict == "missed"
    return gate_finding(
        "SLO001" if is_missed else "SLO002",
        text if is_missed else f"{text} The band holds both sides.",
        suggestion="Ask for settings that meet it: setpoint recommend with the same model,"
        " hardware, workload and targets.",
        setting=name,
    )
