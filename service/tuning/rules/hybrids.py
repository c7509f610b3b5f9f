"""Rules of hybrids: recurrent layers and sliding windows beside full attention."""

from collections.abc import Iterator

from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import GroupedQueryAttention, LinearAttention, ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    positive_int,
    thread,
    vllm,
    with_model,
    with_plan,
)
from service.tuning.rules.tensor_parallel import obstacle_check

_ALIGNS_SINCE = "0.16.0"


def _aligned_block(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec, kv = context.spec, plan.kv
    budget = positive_int(context.effective.max_num_batched_tokens)
    if spec is None or kv is None or budget is None or not spec.is_hybrid:
        return
    attention = [group.block_tokens for group in kv.groups if group.kind != "recurrent"]
    block = max(attention, default=0)
    is_seen = any(isinstance(group.mixer, LinearAttention) for group in spec.layers)
    if context.effective.enable_prefix_caching and budget < block:
        yield Remark(
            # Reports are of linear attention; older releases aligned Mamba states otherwise.
            severity="error" if is_seen else "warning",
            message=f"Prefix caching aligns states to cache blocks of {block} tokens, but a step"
            f" has {budget}: refused.",
            suggestion=f"Set max_num_batched_tokens to {block} or more.",
        )


def _windows_unmanaged(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    has_windows = any(
        isinstance(group.mixer, GroupedQueryAttention)
        and (group.mixer.window is not None or group.mixer.chunk is not None)
        for group in spec.layers
    )
    if context.given.disable_hybrid_kv_cache_manager is True and has_windows:
        yield Remark(
            message="Without the hybrid cache manager, layers with a window keep the whole"
            " context: the cache holds far fewer tokens.",
            suggestion="Leave disable_hybrid_kv_cache_manager out.",
        )


def _prefix_caching_off(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    workload = context.workload
    shared = workload.shared_prefix_tokens if workload is not None else None
    if spec.is_hybrid and shared and context.given.enable_prefix_caching is None:
        yield Remark(
            message="Prefix caching is off by default for recurrent hybrids in this release,"
            f" although requests share {shared} tokens.",
            suggestion="Use 0.26.0 or newer, or switch it on and measure.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="HYB001",
        title="Recurrent heads divide by the tensor-parallel size",
        help="Heads of Gated DeltaNet, KDA and Mamba layers are cut and never copied.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(vllm("model_executor/layers/mamba/mamba_utils.py"),),
        check=obstacle_check("recurrent_heads"),
    ),
    Rule(
        id="HYB002",
        title="A step holds one aligned block",
        help="Hybrids enlarge the attention block until a recurrent state fits it. With prefix"
        " caching, chunks end on block boundaries, so a step must hold a block.",
        settings=("max_num_batched_tokens",),
        severity="error",
        since=_ALIGNS_SINCE,
        source=(vllm("config/vllm.py: block size and batched tokens in align mode"),),
        check=with_plan(_aligned_block),
    ),
    Rule(
        id="HYB003",
        title="The hybrid cache manager saves what windows never read",
        help="Layers with a sliding window need only its tokens. Without the manager they reserve"
        " the full length.",
        settings=("disable_hybrid_kv_cache_manager",),
        severity="warning",
        since="0.9.1",
        source=(vllm("v1/core/kv_cache_utils.py"),),
        check=with_model(_windows_unmanaged),
    ),
    Rule(
        id="HYB004",
        title="Prefix caching of hybrids came late",
        help="Decoder models reuse prefixes since 0.8.0, recurrent hybrids by default since"
        " 0.26.0, and only whole, large blocks.",
        settings=("enable_prefix_caching",),
        severity="note",
        until="0.26.0",
        source=(thread("issue 47430"), vllm("engine/arg_utils.py")),
        check=with_model(_prefix_caching_off),
    ),
)
