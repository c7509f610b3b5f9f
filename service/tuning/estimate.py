"""The what-if: does a configuration fit, and how fast is it."""

from typing import Any

import msgspec

from api_schemas.engine import EngineConfig
from api_schemas.estimate import Band, Estimate, EstimateRequest, MemoryBreakdown, Performance
from api_schemas.slo import Slo, TargetOutcome
from api_schemas.workload import Workload
from service.tuning.accepted_load import served_workload
from service.tuning.calibrations.known import Calibrations, KnownCalibration, calibration_for
from service.tuning.engine.batch_limits import Usage
from service.tuning.errors import BeyondCache
from service.tuning.memory.plan import GIB, KvPlan, MemoryPlan
from service.tuning.models import catalogue
from service.tuning.nearest_start import nearest_start
from service.tuning.played_run import PlayedRun
from service.tuning.presets import fill_workload
from service.tuning.provenance import provenance
from service.tuning.situation import ModelResolver, Situation, look_up
from service.tuning.verdicts import judge_slo


def estimate(
    request: EstimateRequest,
    *,
    resolve_model: ModelResolver = catalogue.resolve_model,
    calibrations: Calibrations = (),
    usage: Usage = "serve",
    played: PlayedRun | None = None,
) -> Estimate:
    """Return whether the configuration fits, its memory, and its latency under the workload.

    `usage` is the entry point whose defaults are filled in: `vllm serve` or the `LLM` class. With
    `played` the latency is that of this very run.
    A configuration that vLLM would refuse is an answer with `fits` false and error findings.

    Raises:
        TuningError: The model, GPU, version or architecture is unknown, or a value is nonsense.
    """
    workload, slo = _filled(request)
    situation = look_up(
        model=request.model,
        hardware=request.hardware,
        engine=request.engine,
        workload=workload,
        slo=slo,
        resolve_model=resolve_model,
        usage=usage,
    )
    known = calibration_for(
        calibrations,
        spec=situation.spec,
        node=situation.node,
        config=situation.runnable,
        version=situation.version,
        speculative=situation.speculative,
    )
    nearest, notes = nearest_start(situation, request, workload, resolve_model, usage)
    performance, outcomes = _perform(nearest, workload, slo, known, played)
    is_calibrated = known is not None and performance is not None
    return Estimate(
        fits=situation.fits,
        memory=memory_breakdown(situation.plan, situation.effective),
        performance=performance,
        slo=outcomes,
        basis="calibrated" if is_calibrated else "modelled",
        defaults_applied=applied_defaults(situation.given, situation.effective),
        findings=[*situation.findings, *(notes if performance is not None else [])],
        provenance=provenance(
            situation.version, calibration=known.basis if known and is_calibrated else None
        ),
    )


def memory_breakdown(plan: MemoryPlan, effective: EngineConfig) -> MemoryBreakdown:
    """Return the plan of the limiting rank in the words of the wire, GiB and tokens.

    `cuda_graphs_gib` is the real size of the graphs; only newer releases take part of it from
    the budget. `kv_cache_gib` is negative by what is missing when nothing is left.
    """
    kv = plan.kv
    return MemoryBreakdown(
        total_gib=_gib(plan.total_bytes),
        requested_gib=_gib(plan.requested_bytes),
        weights_gib=_gib(plan.weights_bytes),
        activation_gib=_gib(plan.activation_bytes),
        non_torch_gib=_gib(plan.non_torch_bytes),
        cuda_graphs_gib=_gib(plan.cuda_graphs_bytes),
        kv_cache_gib=_gib(kv.kv_cache_bytes if kv is not None else plan.available_bytes),
        kv_cache_tokens=kv.tokens if kv is not None else 0,
        kv_cache_blocks=kv.num_blocks if kv is not None else 0,
        block_size=_block_tokens(kv, effective),
        kv_bytes_per_token=plan.kv_bytes_per_token,
        max_concurrency=round(kv.max_concurrency, 4) if kv is not None else 0.0,
        max_model_len=plan.max_model_len,
        largest_max_model_len=kv.largest_max_model_len if kv is not None else 0,
        band={"kv_cache_tokens": _token_band(plan), "kv_cache_gib": _gib_band(plan)},
    )


def applied_defaults(given: EngineConfig, effective: EngineConfig) -> EngineConfig:
    """Return the settings that were filled in, without those that the caller wrote."""
    stated: dict[str, Any] = msgspec.to_builtins(given)
    filled: dict[str, Any] = msgspec.to_builtins(effective)
    del filled["cudagraph_capture_sizes"]  # their maximum says it in a line
    return EngineConfig(**{name: filled[name] for name in filled if name not in stated})


def _filled(request: EstimateRequest) -> tuple[Workload | None, Slo | None]:
    if request.workload is None:
        return None, request.slo
    filled = fill_workload(request.workload, request.slo)
    return filled.workload, filled.slo


def _perform(
    situation: Situation,
    workload: Workload | None,
    slo: Slo | None,
    known: KnownCalibration | None,
    played: PlayedRun | None,
) -> tuple[Performance | None, list[TargetOutcome]]:
    """Return latency and its verdicts; nothing without a workload, or where none is served."""
    if workload is None or not situation.fits or situation.plan.kv is None:
        return None, []
    # What a run has sent and got answers to was served, whatever the plan says.
    longest = situation.plan.max_model_len
    served = workload if played else served_workload(workload, max_model_len=longest)
    if served is None:
        return None, []
    # The simulation compiles code when it is imported: memory alone must not wait for it.
    from service.tuning.performance import predict_performance  # noqa: PLC0415

    try:
        performance = predict_performance(
            spec=situation.spec,
            node=situation.node,
            config=situation.runnable,
            version=situation.version,
            plan=situation.plan,
            workload=served,
            slo=slo,
            speculative=situation.speculative,
            calibration=known.under(workload) if known is not None else None,
            played=played,
        )
    except BeyondCache:
        return None, []
    outcomes = list(judge_slo(performance, slo)) if slo is not None else []
    return performance, outcomes


def _gib(size_bytes: float) -> float:
    return round(size_bytes / GIB, 4)


def _block_tokens(kv: KvPlan | None, effective: EngineConfig) -> int:
    attention = [group for group in kv.groups if group.kind != "recurrent"] if kv else []
    return min((g.block_tokens for g in attention), default=effective.block_size or 0)


def _token_band(plan: MemoryPlan) -> Band:
    if plan.kv is None or plan.kv.num_blocks == 0:
        return [0.0, 0.0]
    middle, tokens = plan.kv.kv_cache_bytes, plan.kv.tokens
    per_byte = tokens / max(1, middle)
    edges = (middle - plan.band_bytes, middle + plan.band_bytes)
    low, high = (max(0, round(edge * per_byte)) for edge in edges)
    return [float(min(low, tokens)), float(max(high, tokens))]


def _gib_band(plan: MemoryPlan) -> Band:
    middle = plan.kv.kv_cache_bytes if plan.kv is not None else plan.available_bytes
    return [_gib(middle - plan.band_bytes), _gib(middle + plan.band_bytes)]
