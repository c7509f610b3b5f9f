"""The nearest configuration that starts, where vLLM would refuse the one that was asked about.

An estimate says that it does not fit, and still gives the latency of what does: another length,
whole experts, or more of the GPU's memory.
"""

from typing import Any

import msgspec

from api_schemas.engine import Engine, EngineConfig
from api_schemas.estimate import EstimateRequest
from api_schemas.explanation import Finding, Source
from api_schemas.workload import Workload
from service.tuning.engine.batch_limits import Usage
from service.tuning.lengths import mean_tokens
from service.tuning.situation import ModelResolver, Situation, look_up

_MEMORY_RULE = "CAP002"
_LENGTH_RULE = "CAP003"
_BLOCK_RULE = "QNT006"
_HIGHEST_SHARE = 0.95
"""The most of a GPU's memory that guides give to vLLM where its default of 0.9 is too little."""


def nearest_start(
    situation: Situation,
    request: EstimateRequest,
    workload: Workload | None,
    resolve_model: ModelResolver,
    usage: Usage,
) -> tuple[Situation, list[Finding]]:
    """Return the nearest situation that starts, with notes of what it takes; else as it is."""
    shortened = _at_largest_length(situation, workload)
    if shortened is not None:
        return shortened, _length_notes(situation, shortened)
    whole = _with_whole_experts(situation, request, resolve_model, usage)
    if whole is not None:
        return whole, _expert_notes()
    larger = _with_higher_share(situation, request, resolve_model, usage)
    if larger is None:
        return situation, []
    shortened = _at_largest_length(larger, workload)
    if shortened is not None:
        return shortened, [*_share_notes(situation), *_length_notes(situation, shortened)]
    return (larger, _share_notes(situation)) if larger.fits else (situation, [])


def _at_largest_length(situation: Situation, workload: Workload | None) -> Situation | None:
    """Return the situation at the longest `max_model_len` that fits, where that is all it lacks.

    None where it starts as it is, lacks something else, or typical requests are longer still.
    """
    errors = {finding.rule for finding in situation.findings if finding.severity == "error"}
    plan = situation.plan
    if workload is None or plan.kv is None or errors != {_LENGTH_RULE}:
        return None
    longest = plan.kv.largest_max_model_len
    if longest < _typical_tokens(workload):
        return None
    shorter = msgspec.structs.replace(plan, max_model_len=longest, fits=True, refusals=())
    rest = tuple(f for f in situation.findings if f.severity != "error")
    return msgspec.structs.replace(situation, plan=shorter, findings=rest)


def _typical_tokens(workload: Workload) -> float:
    """Return prompt and answer of a mean request, tokens."""
    prompts, outputs = workload.prompt_tokens, workload.output_tokens
    return sum(mean_tokens(lengths) for lengths in (prompts, outputs) if lengths is not None)


def _length_notes(situation: Situation, shortened: Situation) -> list[Finding]:
    longest = shortened.plan.max_model_len
    note = Finding(
        rule=_LENGTH_RULE,
        severity="note",
        setting="max_model_len",
        message=(
            f"Latency and throughput are given for max_model_len {longest}, the largest that fits: "
            f"vLLM does not start with {situation.plan.max_model_len}, but this load's requests "
            "need less."
        ),
        suggestion=f"Set max_model_len to {longest} or less.",
        source=[Source(title="Memory model", where="service/tuning/nearest_start.py")],
    )
    return [note]


def _with_whole_experts(
    situation: Situation, request: EstimateRequest, resolve_model: ModelResolver, usage: Usage
) -> Situation | None:
    """Return the situation with expert parallelism, where the cut of the experts is all it lacks.

    None where it starts as it is, lacks something else, or does not start that way either.
    """
    errors = {finding.rule for finding in situation.findings if finding.severity == "error"}
    if request.workload is None or errors != {_BLOCK_RULE} or not situation.spec.is_moe:
        return None
    changes = EngineConfig(enable_expert_parallel=True)
    whole = _changed(changes, request=request, resolve_model=resolve_model, usage=usage)
    return whole if whole.fits else None


def _expert_notes() -> list[Finding]:
    return [
        Finding(
            rule=_BLOCK_RULE,
            severity="note",
            setting="enable_expert_parallel",
            message=(
                "Latency and throughput are given for enable_expert_parallel: vLLM does not start "
                "with experts cut like this, and does with whole ones."
            ),
            suggestion="Set enable_expert_parallel.",
            source=[Source(title="Rules of quantisation", where="service/tuning/nearest_start.py")],
        )
    ]


def _with_higher_share(
    situation: Situation, request: EstimateRequest, resolve_model: ModelResolver, usage: Usage
) -> Situation | None:
    """Return the situation with as much memory for vLLM as guides give it, where that is missing.

    None where it starts as it is, lacks something else, takes as much already, or shares its
    memory with the host.
    """
    errors = {finding.rule for finding in situation.findings if finding.severity == "error"}
    share = situation.effective.gpu_memory_utilization
    if request.workload is None or not errors or not errors <= {_MEMORY_RULE, _LENGTH_RULE}:
        return None
    if share is None or share >= _HIGHEST_SHARE or situation.given.kv_cache_memory_bytes:
        return None
    if situation.node.gpu.unified_memory:
        return None
    changes = EngineConfig(gpu_memory_utilization=_HIGHEST_SHARE)
    return _changed(changes, request=request, resolve_model=resolve_model, usage=usage)


def _share_notes(situation: Situation) -> list[Finding]:
    share = situation.effective.gpu_memory_utilization
    return [
        Finding(
            rule=_MEMORY_RULE,
            severity="note",
            setting="gpu_memory_utilization",
            message=(
                f"Latency and throughput are given for gpu_memory_utilization {_HIGHEST_SHARE:g}: "
                f"the memory model leaves too little for this load at {share:g}, by less than the "
                "larger share adds."
            ),
            suggestion=f"Set gpu_memory_utilization to {_HIGHEST_SHARE:g}.",
            source=[Source(title="Memory model", where="service/tuning/nearest_start.py")],
        )
    ]


def _changed(
    changes: EngineConfig,
    *,
    request: EstimateRequest,
    resolve_model: ModelResolver,
    usage: Usage,
) -> Situation:
    """Return the situation of the same request with these settings in place of its own."""
    engine = request.engine or Engine()
    wanted: dict[str, Any] = msgspec.to_builtins(changes)
    given = msgspec.structs.replace(engine.config or EngineConfig(), **wanted)
    return look_up(
        model=request.model,
        hardware=request.hardware,
        engine=msgspec.structs.replace(engine, config=given),
        workload=None,
        slo=None,
        resolve_model=resolve_model,
        usage=usage,
    )
