"""A request looked up: model, node, release, settings with every default, memory plan."""

from collections.abc import Callable, Mapping

import msgspec

from api_schemas.base import Json
from api_schemas.engine import Engine, EngineConfig
from api_schemas.explanation import Finding
from api_schemas.hardware import Hardware
from api_schemas.model import ModelRef, Speculative
from api_schemas.slo import Slo
from api_schemas.workload import Workload
from service.tuning.engine.batch_limits import Usage
from service.tuning.engine.defaults import effective_config
from service.tuning.engine.platform import speculative_method
from service.tuning.engine.versions import EngineVersion, parse_version
from service.tuning.errors import TuningError
from service.tuning.hardware.catalogue import resolve_hardware
from service.tuning.hardware.spec import Node
from service.tuning.memory.budget import plan_memory
from service.tuning.memory.plan import MemoryPlan
from service.tuning.memory.stage_cache import DRAFT_HEADS
from service.tuning.models.spec import ModelSpec
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext

ModelResolver = Callable[[ModelRef], ModelSpec]
_UNKNOWN_DRAFTER = "CAP012"


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A request with everything looked up and every default filled in."""

    spec: ModelSpec
    draft: ModelSpec | None
    node: Node
    version: EngineVersion
    given: EngineConfig
    """What the caller wrote, with the adapters and the drafter of the model."""
    effective: EngineConfig
    plan: MemoryPlan
    findings: tuple[Finding, ...]
    speculative: Speculative | None
    """How the model drafts tokens, as the caller stated it."""

    @property
    def runnable(self) -> EngineConfig:
        """The effective settings with an "auto" length replaced by what fits."""
        if self.effective.max_model_len == self.plan.max_model_len:
            return self.effective
        return msgspec.structs.replace(self.effective, max_model_len=self.plan.max_model_len)

    @property
    def fits(self) -> bool:
        """Whether vLLM would start: memory suffices and no rule says no."""
        has_errors = any(finding.severity == "error" for finding in self.findings)
        return self.plan.fits and not has_errors


def look_up(
    *,
    model: ModelRef,
    hardware: Hardware,
    engine: Engine | None,
    workload: Workload | None,
    slo: Slo | None,
    resolve_model: ModelResolver,
    usage: Usage = "serve",
) -> Situation:
    """Return the request with model, node and release resolved, planned and checked.

    `usage` is the entry point: the `LLM` class has batch limits of its own.

    Raises:
        TuningError: The model, GPU, version or architecture is unknown, or a value is nonsense.
    """
    engine = engine or Engine()
    env = engine.env or {}
    version = parse_version(engine.version)
    node, notes = resolve_hardware(hardware)
    given = with_model_extras(engine.config or EngineConfig(), model)
    spec = resolve_model(model)
    effective = effective_config(given, spec=spec, node=node, version=version, usage=usage)
    draft, unknown = _resolve_draft(effective, model, resolve_model)
    plan = plan_memory(
        spec=spec, node=node, config=effective, version=version, draft=draft, env=env
    )
    situation = Situation(
        spec=spec,
        draft=draft,
        node=node,
        version=version,
        given=given,
        effective=effective,
        plan=plan,
        findings=(*unknown, *notes),
        speculative=model.speculative,
    )
    context = _context(situation, model=model, workload=workload, slo=slo, env=env)
    findings = (*check_rules(context), *situation.findings)
    return msgspec.structs.replace(situation, findings=findings)


def _context(
    situation: Situation,
    *,
    model: ModelRef,
    workload: Workload | None,
    slo: Slo | None,
    env: Mapping[str, str],
) -> RuleContext:
    """Return what the rules look at."""
    return RuleContext(
        version=situation.version,
        given=situation.given,
        effective=situation.effective,
        spec=situation.spec,
        node=situation.node,
        plan=situation.plan,
        model=model,
        workload=workload,
        slo=slo,
        env=env,
    )


def with_model_extras(config: EngineConfig, model: ModelRef) -> EngineConfig:
    """Return the settings with the model's adapters and drafter, where they do not say so."""
    changes: dict[str, Json] = {}
    if model.lora is not None and config.enable_lora is None:
        changes["enable_lora"] = True
        changes["max_loras"] = config.max_loras or model.lora.max_adapters
        changes["max_lora_rank"] = config.max_lora_rank or model.lora.max_rank
    drafter = model.speculative
    if drafter is not None and config.speculative_config is None:
        speculative: dict[str, Json] = {
            "method": drafter.method,
            "num_speculative_tokens": drafter.num_tokens,
        }
        if drafter.model is not None:
            speculative["model"] = drafter.model.id
        changes["speculative_config"] = speculative
    return msgspec.structs.replace(config, **changes) if changes else config


def _resolve_draft(
    config: EngineConfig, model: ModelRef, resolve_model: ModelResolver
) -> tuple[ModelSpec | None, tuple[Finding, ...]]:
    """Return the drafting model, when there is one of its own, and a finding if it is unknown."""
    reference = _draft_reference(config.speculative_config or {}, model)
    method = speculative_method(config)
    if reference is None or method is None or method == "ngram":
        return None, ()
    try:
        return resolve_model(reference), ()
    except TuningError as error:
        # An EAGLE head that no catalogue knows is close to one layer of its target.
        if method in DRAFT_HEADS:
            return None, ()
        return None, (_unknown_drafter(reference, error),)


def _draft_reference(speculative: Mapping[str, Json], model: ModelRef) -> ModelRef | None:
    if model.speculative is not None and model.speculative.model is not None:
        return model.speculative.model
    name = speculative.get("model")
    if not isinstance(name, str) or name in ("", "ngram", "[ngram]", model.id):
        return None
    try:
        return msgspec.convert({"id": name}, ModelRef)
    except msgspec.ValidationError:
        return None


def _unknown_drafter(reference: ModelRef, error: TuningError) -> Finding:
    return Finding(
        rule=_UNKNOWN_DRAFTER,
        severity="warning",
        setting="speculative_config",
        message=f"The drafter {reference.id} is left out of the memory plan: {error.message}",
        suggestion="Give its config.json in model.speculative.model.config.",
    )
