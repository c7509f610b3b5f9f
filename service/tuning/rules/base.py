"""What a rule is, what it looks at, and how the rules are run together."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.explanation import Finding, Severity, Source
from api_schemas.model import ModelRef
from api_schemas.slo import Slo
from api_schemas.workload import Workload
from service.tuning.engine.versions import EngineVersion
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec

_RANK: Mapping[Severity, int] = {"error": 0, "warning": 1, "note": 2}


class RuleContext(msgspec.Struct, frozen=True, kw_only=True):
    """All that a rule may look at; what is not known is None and its rules stay silent."""

    version: EngineVersion
    given: EngineConfig
    """What the caller wrote."""
    effective: EngineConfig
    """The same with the defaults of that version filled in (equal to `given` without a model)."""
    spec: ModelSpec | None = None
    node: Node | None = None
    plan: MemoryPlan | None = None
    model: ModelRef | None = None
    """The model as asked for: its adapters and its drafter."""
    workload: Workload | None = None
    slo: Slo | None = None
    env: Mapping[str, str] = {}

    @property
    def tensor_parallel_size(self) -> int:
        """Ranks that share each layer; 1 when the value makes no sense."""
        return positive_int(self.effective.tensor_parallel_size) or 1

    @property
    def pipeline_parallel_size(self) -> int:
        """Stages of the layer stack; 1 when the value makes no sense."""
        return positive_int(self.effective.pipeline_parallel_size) or 1

    @property
    def data_parallel_size(self) -> int:
        """Engine replicas inside one deployment; 1 when the value makes no sense."""
        return positive_int(self.effective.data_parallel_size) or 1

    @property
    def world_size(self) -> int:
        """GPUs that one deployment takes."""
        prefill = positive_int(self.effective.prefill_context_parallel_size) or 1
        replica = self.tensor_parallel_size * self.pipeline_parallel_size * prefill
        return replica * self.data_parallel_size

    @property
    def expert_parallel(self) -> bool:
        """Whether experts are spread whole instead of cut."""
        return self.effective.enable_expert_parallel is True


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has to say; the rule adds its id, setting and source."""

    message: str
    suggestion: str | None = None
    setting: str | None = None
    """None is the first setting of the rule."""
    severity: Severity | None = None
    """None is the severity of the rule."""


Check = Callable[[RuleContext], Iterable[Remark]]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be wrong with a configuration, and why it matters."""

    id: str
    """Letter group and number, such as PAR001; stable."""
    title: str
    help: str
    """Why it matters and what to do, for people."""
    settings: tuple[str, ...]
    severity: Severity
    """The usual severity; a check may choose another for a milder or harder case."""
    source: tuple[Source, ...]
    check: Check
    since: str | None = None
    """First vLLM release it holds for; None is from the start."""
    until: str | None = None
    """First vLLM release it no longer holds for; None is up to the newest."""

    def holds_for(self, version: EngineVersion) -> bool:
        """Whether the rule is true of this release."""
        is_before = self.since is not None and not version.since(self.since)
        is_after = self.until is not None and version.since(self.until)
        return not is_before and not is_after

    def finding(self, remark: Remark) -> Finding:
        """Return a remark of this rule's check with what is the rule's to say."""
        return Finding(
            rule=self.id,
            severity=remark.severity or self.severity,
            message=remark.message,
            setting=remark.setting or (self.settings[0] if self.settings else None),
            suggestion=remark.suggestion,
            source=list(self.source),
        )


def says_nothing(_: RuleContext) -> tuple[Remark, ...]:
    """Return no remark: the check of a rule whose findings are made elsewhere."""
    return ()


def run_rules(rules: Iterable[Rule], context: RuleContext) -> list[Finding]:
    """Return what the rules find: errors first, then by rule id, then in the order found.

    Rules that do not hold for the release find nothing.
    """
    return run_rules_that_hold((rule for rule in rules if rule.holds_for(context.version)), context)


def run_rules_that_hold(rules: Iterable[Rule], context: RuleContext) -> list[Finding]:
    """Return what `run_rules` does of rules that are known to hold for the release."""
    found = [rule.finding(remark) for rule in rules for remark in rule.check(context)]
    return sorted(found, key=lambda finding: (_RANK[finding.severity], finding.rule))


def with_model(check: Callable[[RuleContext, ModelSpec], Iterable[Remark]]) -> Check:
    """Return a check that stays silent while the model is not known."""
    return lambda context: [] if context.spec is None else check(context, context.spec)


def with_node(check: Callable[[RuleContext, Node], Iterable[Remark]]) -> Check:
    """Return a check that stays silent while the hardware is not known."""
    return lambda context: [] if context.node is None else check(context, context.node)


def with_both(check: Callable[[RuleContext, ModelSpec, Node], Iterable[Remark]]) -> Check:
    """Return a check that stays silent while model or hardware is not known."""

    def guarded(context: RuleContext) -> Iterable[Remark]:
        if context.spec is None or context.node is None:
            return []
        return check(context, context.spec, context.node)

    return guarded


def with_plan(check: Callable[[RuleContext, MemoryPlan], Iterable[Remark]]) -> Check:
    """Return a check that stays silent while there is no memory plan."""
    return lambda context: [] if context.plan is None else check(context, context.plan)


def positive_int(value: object) -> int | None:
    """Return `value` when it is a whole number of at least 1, else None (bools are none)."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 1 else None


def number(value: object) -> float | None:
    """Return `value` as a float when it is a finite number, else None (bools are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    is_finite = abs(value) < float("inf")
    return float(value) if is_finite else None


def vllm(where: str, *, version: str = "0.33.0") -> Source:
    """Return a source in vLLM's own code, as read in that release."""
    return Source(title=f"vLLM {version} source", where=where)


def thread(where: str, *, repository: str = "vllm-project/vllm") -> Source:
    """Return a source in a public issue or pull request."""
    return Source(title="Public thread", where=f"{repository} {where}")


def guide(where: str) -> Source:
    """Return a source in one of the tuning guides that the project answers."""
    return Source(title="Tuning guides, checked against the engine", where=where)
