"""The parts an advice is made of: estimates, alternatives, cost, the request as understood."""

import math
from collections.abc import Sequence

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Estimate, Performance
from api_schemas.explanation import Finding
from api_schemas.recommendation import (
    AllCopies,
    Alternative,
    Constraints,
    Cost,
    Replicas,
    ShortEstimate,
    TargetEngine,
    TuningRequest,
    UnderstoodRequest,
)
from api_schemas.slo import TargetOutcome
from service.tuning.decisions.headline import trade_off
from service.tuning.estimate import applied_defaults, memory_breakdown
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.provenance import provenance
from service.tuning.rules import check_rules
from service.tuning.rules.base import RuleContext
from service.tuning.search.alternatives import Alternate
from service.tuning.search.baseline import Baseline
from service.tuning.search.emission import emitted
from service.tuning.search.problem import Problem
from service.tuning.search.share import loaded_copies, share_of, slo_of_one
from service.tuning.search.trial import Trial

_SECONDS_PER_HOUR = 3600


def rule_findings(
    problem: Problem,
    *,
    config: EngineConfig,
    effective: EngineConfig,
    plan: MemoryPlan,
    copies: int = 1,
) -> list[Finding]:
    """Return what the rules find in one of the copies of a configuration under its load."""
    return check_rules(
        RuleContext(
            version=problem.version,
            given=config,
            effective=effective,
            spec=problem.spec,
            node=node_of_one(problem.node, effective),
            plan=plan,
            model=problem.model,
            workload=share_of(problem.filled.workload, copies=copies),
            slo=slo_of_one(
                problem.filled.slo, copies=loaded_copies(problem.filled.workload, copies=copies)
            ),
        )
    )


def node_of_one(node: Node, effective: EngineConfig) -> Node:
    """Return the part of the hardware that one copy of the configuration has to itself."""
    gpus = min(node.num_gpus, gpus_of_one(effective))
    per_node = min(gpus, node.gpus_per_node)
    return msgspec.structs.replace(node, gpus_per_node=per_node, nodes=math.ceil(gpus / per_node))


def gpus_of_one(config: EngineConfig) -> int:
    """Return the GPUs that one copy takes; a size that is not given counts as 1."""
    sizes = (
        config.tensor_parallel_size,
        config.pipeline_parallel_size,
        config.data_parallel_size,
    )
    return math.prod(max(1, size or 1) for size in sizes)


def estimate_of(
    problem: Problem,
    *,
    config: EngineConfig,
    effective: EngineConfig,
    plan: MemoryPlan,
    performance: Performance | None,
    outcomes: Sequence[TargetOutcome],
    findings: Sequence[Finding],
) -> Estimate:
    """Return the what-if of one copy; it starts only without error findings."""
    fits = plan.fits and not any(finding.severity == "error" for finding in findings)
    known = problem.calibration_of(effective) if performance is not None else None
    return Estimate(
        fits=fits,
        memory=memory_breakdown(plan, effective),
        performance=performance,
        slo=list(outcomes),
        basis="modelled" if known is None else "calibrated",
        defaults_applied=applied_defaults(config, effective),
        findings=list(findings),
        provenance=provenance(
            problem.version, calibration=known.basis if known is not None else None
        ),
    )


def baseline_estimate(problem: Problem, baseline: Baseline) -> Estimate:
    """Return the what-if of one copy of vLLM's own defaults."""
    return estimate_of(
        problem,
        config=baseline.config,
        effective=baseline.effective,
        plan=baseline.plan,
        performance=baseline.performance,
        outcomes=baseline.outcomes,
        findings=rule_findings(
            problem,
            config=baseline.config,
            effective=baseline.effective,
            plan=baseline.plan,
            copies=baseline.copies,
        ),
    )


def alternative(problem: Problem, other: Alternate, pick: Trial) -> Alternative:
    """Return another point of the front with what it trades against the pick."""
    trial = other.trial
    return Alternative(
        label=other.label,
        config=emitted(problem, trial.sized.config, trial.sized.effective),
        replicas=replicas_of(trial),
        estimate=_short(trial),
        trade_off=trade_off(problem, trial, pick),
    )


def _short(trial: Trial) -> ShortEstimate:
    performance = trial.performance
    return ShortEstimate(
        kv_cache_tokens=trial.sized.kv.tokens,
        max_concurrency=round(trial.sized.kv.max_concurrency, 4),
        ttft_ms_p95=performance.ttft_ms.p95,
        tpot_ms_p95=performance.tpot_ms.p95,
        e2el_ms_p95=performance.e2el_ms.p95,
        requests_per_s=trial.requests_per_s,
        output_tokens_per_s=trial.output_tokens_per_s,
        output_tokens_per_s_per_gpu=trial.output_tokens_per_s / trial.gpus,
        preemptions_per_request=performance.preemptions_per_request,
        meets_slo=trial.meets,
    )


def replicas_of(trial: Trial, *, starts: bool = True) -> Replicas:
    """Return the copies of a trial and what each of them serves, if it starts at all."""
    return Replicas(
        count=trial.copies,
        gpus=trial.gpus,
        requests_per_s_each=trial.performance.requests_per_s if starts else None,
    )


def all_copies(problem: Problem, estimate: Estimate, *, count: int, gpus: int) -> AllCopies:
    """Return what this many copies of an estimated configuration do together."""
    performance, memory = estimate.performance, estimate.memory
    loaded = loaded_copies(problem.filled.workload, copies=max(1, count))
    return AllCopies(
        count=count,
        gpus=gpus,
        requests_per_s=None if performance is None else performance.requests_per_s * loaded,
        output_tokens_per_s=None
        if performance is None
        else performance.output_tokens_per_s * loaded,
        kv_cache_tokens=0 if memory is None else memory.kv_cache_tokens * count,
    )


def cost_of(problem: Problem, trial: Trial) -> Cost | None:
    """Return price per hour and per million output tokens, when the request names a price."""
    price = problem.node.price_per_gpu_hour
    if price is None:
        return None
    per_hour = price * trial.gpus
    tokens_per_hour = trial.output_tokens_per_s * _SECONDS_PER_HOUR
    return Cost(
        per_million_output_tokens=per_hour / tokens_per_hour * 1e6 if tokens_per_hour > 0 else None,
        per_hour=per_hour,
    )


def understood(request: TuningRequest, problem: Problem) -> UnderstoodRequest:
    """Return the request as it was read, with what was assumed."""
    return UnderstoodRequest(
        model=request.model,
        hardware=request.hardware,
        workload=problem.filled.workload,
        slo=problem.filled.slo,
        objective=problem.objective,
        posture=problem.posture,
        engine=TargetEngine(version=problem.version.text),
        constraints=request.constraints or Constraints(),
        assumptions=list(problem.filled.assumptions),
    )
