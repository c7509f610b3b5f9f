"""One layout sized: length, admission cap and token budget that its memory carries."""

import math
from collections.abc import Hashable
from typing import TypeVar

import msgspec

from api_schemas.engine import EngineConfig
from service.tuning.engine.defaults import effective_config
from service.tuning.memory.budget import plan_memory
from service.tuning.memory.plan import GIB, KvPlan, MemoryPlan
from service.tuning.rules.domains import kv_cache_dtype_support, minimum_batched_tokens
from service.tuning.search.admission_rule import AdmissionChoice, choose_admission
from service.tuning.search.memo import Memo, encoded
from service.tuning.search.misfit import Misfit, misfit_of
from service.tuning.search.problem import Problem
from service.tuning.search.topology import Topology
from service.tuning.search.utilization_rule import CONTEXT_GIB

T = TypeVar("T")
FP8 = "fp8"
_PROVISIONAL_SEQS = 256
"""Cap that the pool is first sized with; the chosen one replaces it."""
_ROUNDS = 4
"""Of cap against pool; they settle in two or three."""
_BLOCK_TOKENS = 16
_BUDGET_STEP = 256
_PLANS: Memo[tuple[EngineConfig, MemoryPlan]] = Memo(most=8192)
"""Of all requests: models and GPUs repeat, and a plan knows nothing of the load.

Layouts hold the plans that count, so twice as many save 0.2 % of an answer's CPU for 30 MiB.
"""
_LAYOUTS: Memo["Sized | Misfit"] = Memo(most=8192)
"""Of all requests: a layout is sized for lengths, whatever their rate and limits.

With half as many a tenth more plans are made anew, for 13 MiB.
"""


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration that fits, with the plan that says so."""

    topology: Topology
    kv_cache_dtype: str | None
    config: EngineConfig
    """What would be emitted, before anything equal to vLLM's own value is dropped."""
    effective: EngineConfig
    plan: MemoryPlan
    admission: AdmissionChoice

    @property
    def kv(self) -> KvPlan:
        """The KV plan, which a configuration that fits always has."""
        if self.plan.kv is None:
            raise ValueError("a configuration that fits has a KV cache")
        return self.plan.kv


def size_topology(
    problem: Problem,
    topology: Topology,
    *,
    kv_cache_dtype: str | None = None,
    max_num_batched_tokens: int | None = None,
) -> Sized | Misfit:
    """Return the layout with the settings that fill its memory well, or why it does not fit."""
    key = (*content_without_load(problem), topology, kv_cache_dtype, max_num_batched_tokens)
    return _LAYOUTS.once(
        key, lambda: _size(problem, topology, kv_cache_dtype, max_num_batched_tokens)
    )


def content_without_load(problem: Problem) -> tuple[Hashable, ...]:
    """Return all of a problem that sizes depend on: neither rates nor limits.

    The demand is looked up without them, so that what is remembered serves every load.
    """
    demand = msgspec.structs.replace(problem.demand, requests_per_s=None, max_concurrency=None)
    content = encoded(
        (
            problem.base,
            problem.constraints,
            problem.posture,
            demand,
            problem.length,
            problem.utilization,
        )
    )
    return problem.spec, problem.node, problem.version.text, problem.draft, content


def _size(
    problem: Problem,
    topology: Topology,
    kv_cache_dtype: str | None,
    max_num_batched_tokens: int | None,
) -> Sized | Misfit:
    draft = _draft_config(problem, topology, kv_cache_dtype, max_num_batched_tokens)
    plan, draft = _fit_length(problem, _fit_floor(problem, _fit_states(problem, draft)))
    if not plan.fits or plan.kv is None:
        return misfit_of(problem, topology, kv_cache_dtype, draft, plan)
    plan, draft = _beside_graphs(problem, draft, plan)
    return _fit_admission(problem, topology, kv_cache_dtype, draft, plan)


def uses_fp8_kv(problem: Problem) -> bool:
    """Whether an 8-bit cache may be proposed: allowed, not pinned, and sure to run there."""
    if not problem.constraints.allow_fp8_kv_cache or problem.pin.kv_cache_dtype is not None:
        return False
    if problem.node.gpu.vendor == "cpu":
        return False
    quantization = problem.spec.quantization
    if quantization is not None and quantization.kv_cache_bits is not None:
        return False
    support = kv_cache_dtype_support(problem.spec, problem.node.gpu, problem.version, FP8)
    return support.ok and support.is_certain


def plan_config(problem: Problem, config: EngineConfig) -> tuple[EngineConfig, MemoryPlan]:
    """Return the effective configuration and its memory plan."""
    key = problem.spec, problem.node, problem.version.text, problem.draft, encoded(config)
    return _PLANS.once(key, lambda: _planned(problem, config))


def _planned(problem: Problem, config: EngineConfig) -> tuple[EngineConfig, MemoryPlan]:
    effective = effective_config(
        config, spec=problem.spec, node=problem.node, version=problem.version
    )
    plan = plan_memory(
        spec=problem.spec,
        node=problem.node,
        config=effective,
        version=problem.version,
        draft=problem.draft,
    )
    return effective, plan


def _draft_config(
    problem: Problem, topology: Topology, kv_cache_dtype: str | None, tokens: int | None
) -> EngineConfig:
    """Return pinned settings, layout, share and length, with a provisional admission cap."""
    pin = problem.pin
    return msgspec.structs.replace(
        problem.base,
        tensor_parallel_size=topology.tensor_parallel_size,
        pipeline_parallel_size=topology.pipeline_parallel_size,
        data_parallel_size=topology.data_parallel_size,
        enable_expert_parallel=topology.enable_expert_parallel,
        kv_cache_dtype=pin.kv_cache_dtype or kv_cache_dtype,
        gpu_memory_utilization=_or(pin.gpu_memory_utilization, problem.utilization.value),
        max_model_len=_or(pin.max_model_len, problem.length.wanted_tokens),
        max_num_seqs=_or(pin.max_num_seqs, _PROVISIONAL_SEQS),
        max_num_batched_tokens=_or(pin.max_num_batched_tokens, tokens),
    )


def _or(given: T | None, default: T) -> T:
    return default if given is None else given


def _fit_states(problem: Problem, config: EngineConfig) -> EngineConfig:
    """Return the configuration with a provisional cap that recurrent state blocks carry."""
    if not problem.spec.is_hybrid or problem.pin.max_num_seqs is not None:
        return config
    _, plan = plan_config(problem, config)
    if "state_blocks" not in plan.refusals or plan.kv is None:
        return config
    return msgspec.structs.replace(config, max_num_seqs=max(1, plan.kv.num_blocks // 4))


def _fit_floor(problem: Problem, config: EngineConfig) -> EngineConfig:
    """Return the configuration with a token budget that vLLM accepts for the model."""
    if problem.pin.max_num_batched_tokens is not None:
        return config
    if not (problem.spec.is_hybrid or problem.spec.is_multimodal):
        return config
    effective, plan = plan_config(problem, config)
    floor = token_floor(problem, effective, plan)
    if (effective.max_num_batched_tokens or 0) >= floor:
        return config
    budget = -(-floor // _BUDGET_STEP) * _BUDGET_STEP
    return msgspec.structs.replace(config, max_num_batched_tokens=budget)


def token_floor(problem: Problem, effective: EngineConfig, plan: MemoryPlan) -> int:
    """Return the least token budget that vLLM accepts with these settings."""
    aligned = [
        group.block_tokens for group in (plan.kv.groups if plan.kv else ()) if group.kind == "full"
    ]
    return minimum_batched_tokens(
        problem.spec,
        effective,
        problem.version,
        aligned_block_tokens=max(aligned, default=None),
    )


def _fit_length(problem: Problem, config: EngineConfig) -> tuple[MemoryPlan, EngineConfig]:
    """Return a plan whose length fits: with head-room, else less of it, else what is needed."""
    _, plan = plan_config(problem, config)
    if problem.pin.max_model_len is not None or (plan.fits and not plan.borderline):
        return plan, config
    if plan.kv is None:
        return plan, config
    needed = problem.length.needed_tokens
    shorter = max(needed, plan.kv.largest_max_model_len // 2 // _BLOCK_TOKENS * _BLOCK_TOKENS)
    if shorter >= problem.length.wanted_tokens:
        return plan, config
    config = msgspec.structs.replace(config, max_model_len=shorter)
    return plan_config(problem, config)[1], config


def _beside_graphs(
    problem: Problem, config: EngineConfig, plan: MemoryPlan
) -> tuple[MemoryPlan, EngineConfig]:
    """Return a share that leaves room for CUDA graphs which the release takes beside it.

    Where that is too small for the model it stays as it was: a rule warns of it.
    """
    share = config.gpu_memory_utilization
    if problem.pin.gpu_memory_utilization is not None or share is None:
        return plan, config
    if plan.charged_graphs_bytes > 0 or plan.cuda_graphs_bytes <= 0:
        return plan, config
    others = (CONTEXT_GIB + problem.node.used_memory_gib) * GIB
    left = (plan.total_bytes - plan.cuda_graphs_bytes - others) / plan.total_bytes
    room = math.floor(left * 100) / 100
    if room >= share or room <= 0:
        return plan, config
    smaller = msgspec.structs.replace(config, gpu_memory_utilization=room)
    lowered, smaller = _fit_length(problem, smaller)
    return (lowered, smaller) if lowered.fits and lowered.kv is not None else (plan, config)


def _fit_admission(
    problem: Problem,
    topology: Topology,
    kv_cache_dtype: str | None,
    config: EngineConfig,
    plan: MemoryPlan,
) -> Sized | Misfit:
    """Return the layout with the largest admission cap found that its own pool carries.

    Cap and pool depend on each other: the sampler's memory grows with the cap. A cap is sound
    when the pool that it leaves would be given the same or a larger one.
    """
    sound: Sized | None = None
    admission = _admit(problem, plan)
    for _ in range(_ROUNDS):
        capped = _with_cap(problem, config, admission.value)
        effective, plan = plan_config(problem, capped)
        if not plan.fits or plan.kv is None:
            return sound or misfit_of(problem, topology, kv_cache_dtype, capped, plan)
        again = _admit(problem, plan)
        if problem.pin.max_num_seqs is not None or again.value >= admission.value:
            sound = Sized(
                topology=topology,
                kv_cache_dtype=kv_cache_dtype,
                config=capped,
                effective=effective,
                plan=plan,
                admission=msgspec.structs.replace(again, value=admission.value),
            )
        if problem.pin.max_num_seqs is not None or again.value == admission.value:
            break
        admission = again
    return sound or _smallest(problem, topology, kv_cache_dtype, config)


def _smallest(
    problem: Problem, topology: Topology, kv_cache_dtype: str | None, config: EngineConfig
) -> Sized | Misfit:
    """Return the layout with one request at a time."""
    capped = _with_cap(problem, config, 1)
    effective, plan = plan_config(problem, capped)
    if not plan.fits or plan.kv is None:
        return misfit_of(problem, topology, kv_cache_dtype, capped, plan)
    return Sized(
        topology=topology,
        kv_cache_dtype=kv_cache_dtype,
        config=capped,
        effective=effective,
        plan=plan,
        admission=msgspec.structs.replace(_admit(problem, plan), value=1),
    )


def with_admission(problem: Problem, sized: Sized, admission: AdmissionChoice) -> Sized | None:
    """Return the layout with another cap, or None when it does not fit."""
    config = _with_cap(problem, sized.config, admission.value)
    effective, plan = plan_config(problem, config)
    if not plan.fits or plan.kv is None:
        return None
    return msgspec.structs.replace(
        sized, config=config, effective=effective, plan=plan, admission=admission
    )


def with_batched_tokens(problem: Problem, sized: Sized, tokens: int) -> Sized | None:
    """Return the layout sized for another token budget, or None when vLLM or memory refuse it.

    A cap that another limit than the pool has lowered stays.
    """
    other = size_topology(
        problem,
        sized.topology,
        kv_cache_dtype=sized.kv_cache_dtype,
        max_num_batched_tokens=tokens,
    )
    if isinstance(other, Misfit) or tokens < token_floor(problem, other.effective, other.plan):
        return None
    if sized.admission.limited_by == "slo" and other.admission.value > sized.admission.value:
        lowered = msgspec.structs.replace(
            other.admission, value=sized.admission.value, limited_by="slo"
        )
        return with_admission(problem, other, lowered)
    return other


def _with_cap(problem: Problem, config: EngineConfig, cap: int) -> EngineConfig:
    """Return the configuration with the cap, never above its token budget."""
    if problem.pin.max_num_seqs is not None:
        return config
    budget = config.max_num_batched_tokens
    return msgspec.structs.replace(config, max_num_seqs=min(cap, budget) if budget else cap)


def _admit(problem: Problem, plan: MemoryPlan) -> AdmissionChoice:
    if plan.kv is None:
        raise ValueError("a configuration that fits has a KV cache")
    return choose_admission(
        _cautious(plan.kv, plan) if problem.posture == "production" else plan.kv,
        problem.demand,
        posture=problem.posture,
        prefix_caching=problem.pin.enable_prefix_caching is not False,
    )


def _cautious(kv: KvPlan, plan: MemoryPlan) -> KvPlan:
    """Return the pool at the low end of its 80 % band."""
    kept = 1 - plan.band_bytes / plan.available_bytes if plan.available_bytes > 0 else 1.0
    return msgspec.structs.replace(kv, num_blocks=max(1, int(kv.num_blocks * max(0.5, kept))))
