"""Why memory is divided as it is: share of the GPU, length, cache format, blocks, dtype."""

from api_schemas.explanation import Decision
from service.tuning.decisions.case import Case, decision
from service.tuning.decisions.sources import (
    GUIDE_LENGTH,
    GUIDE_SHARE,
    MEMORY_MODEL,
    REQUEST,
    vllm,
)
from service.tuning.memory.plan import GIB
from service.tuning.search.figures import figure
from service.tuning.search.lengths_rule import HEADROOM
from service.tuning.search.utilization_rule import Limit

_BESIDE_GRAPHS = (
    "This release captures CUDA graphs outside the share. On this GPU they are large beside what "
    "is left, so the share is smaller than usual: a start must not end while they are captured."
)
_SHARE_REASONS: dict[Limit, str] = {
    "posture": (
        "From 0.20.0 on vLLM counts the CUDA graphs inside this share, so the rest only has to "
        "hold the CUDA context and bursts outside vLLM's accounts."
    ),
    "graphs_outside": (
        "This release captures CUDA graphs outside the share, so a tenth of the GPU stays free "
        "for them and for bursts."
    ),
    "other_users": "Others hold memory on this GPU, and vLLM refuses to start when the share is "
    "not free; some room beside them keeps a restart from failing.",
    "unified_memory": "The operating system and vLLM share this memory; taking more made such "
    "boards swap or stop.",
    "display": "Cards of this class also drive a desktop or its compositor, which takes memory at "
    "any time.",
    "context": "The CUDA context is created before vLLM measures free memory and is not part of "
    "the share.",
}


def memory_share(case: Case) -> Decision:
    """Return why vLLM may take this share of the GPU."""
    choice, node = case.problem.utilization, case.problem.node
    value = case.config.gpu_memory_utilization
    pinned = case.is_pinned("gpu_memory_utilization")
    is_lowered = value is not None and value < choice.value
    reason = _BESIDE_GRAPHS if is_lowered else _SHARE_REASONS[choice.limited_by]
    reason = "Fixed by the request." if pinned else reason
    plan = case.sized.plan
    return decision(
        "gpu_memory_utilization",
        value,
        rule="CHO010",
        reason=reason + case.default_remark("gpu_memory_utilization"),
        formula="KV pool = share x total - weights - activations - non-torch - graphs inside",
        inputs={
            "total_gib": node.total_memory_gib,
            "used_by_others_gib": node.used_memory_gib,
            "posture": case.problem.posture,
            "limits": choice.limits,
            "weights_gib": plan.weights_bytes / GIB,
            "activation_gib": plan.activation_bytes / GIB,
            "non_torch_gib": plan.non_torch_bytes / GIB,
            "graphs_inside_gib": plan.charged_graphs_bytes / GIB,
            "kv_cache_gib": plan.available_bytes / GIB,
        },
        source=(GUIDE_SHARE, vllm("config/cache.py and v1/worker/gpu_worker.py")),
        if_higher=(
            f"{_per_point(case)} more KV cache per hundredth, until a start or a burst runs out of "
            "memory; above 0.95 that is likely."
        ),
        if_lower=f"{_per_point(case)} less KV cache per hundredth: fewer requests at once.",
        confidence="high" if choice.limited_by in ("posture", "graphs_outside") else "medium",
    )


def _per_point(case: Case) -> str:
    tokens = case.problem.node.total_memory_gib * GIB * 0.01
    per_token = max(case.sized.kv.bytes_per_token, 1.0)
    return f"About {figure(tokens / per_token)} tokens"


def length(case: Case) -> Decision:
    """Return why a request may be this long."""
    choice, demand = case.problem.length, case.problem.demand
    return decision(
        "max_model_len",
        case.config.max_model_len,
        rule="CHO011",
        reason=_length_reason(case) + case.default_remark("max_model_len"),
        formula=f"min(peak x {HEADROOM}, the model's limit), less where memory needs it",
        inputs={
            "peak_tokens": choice.peak_tokens,
            "prompt_p99_tokens": demand.prompt_p99_tokens,
            "longest_output_tokens": demand.output_longest_tokens,
            "model_limit_tokens": choice.model_limit_tokens,
            "largest_that_fits": case.sized.kv.largest_max_model_len,
        },
        source=(REQUEST, GUIDE_LENGTH, vllm("config/model.py: get_and_verify_max_len")),
        if_higher=(
            "Longer requests are accepted; one of them can then take the cache of many, and the "
            "start needs room for one of full length."
        ),
        if_lower=f"Requests above it are refused; below {choice.peak_tokens} that hits this load.",
        confidence="high" if choice.stated else "medium",
    )


def _length_reason(case: Case) -> str:
    choice = case.problem.length
    value = case.config.max_model_len
    if case.is_pinned("max_model_len"):
        return "Fixed by the request."
    peak = (
        f"The request states a peak of {choice.peak_tokens} tokens"
        if choice.stated
        else f"The 99th percentile of the prompts plus the longest answer is {choice.peak_tokens}"
    )
    if choice.capped_by_model:
        return (
            f"{peak}, but the model ends at {choice.model_limit_tokens}; longer ones are refused."
        )
    if value == choice.wanted_tokens:
        return f"{peak}; a fifth on top covers growth. The model's maximum is not needed."
    return f"{peak}; the memory left no room for the usual fifth on top."


def cache_format(case: Case) -> Decision:
    """Return why the KV cache is kept in this format, or left as it is."""
    value = case.config.kv_cache_dtype
    plan = case.sized.kv
    return decision(
        "kv_cache_dtype",
        value,
        rule="CHO012",
        reason=_cache_reason(case),
        formula="bytes per token = 2 x KV heads x head size x bytes per element x layers",
        inputs={
            "bytes_per_token": plan.bytes_per_token,
            "element_bytes": plan.element_bytes,
            "kv_cache_tokens": plan.tokens,
        },
        source=(MEMORY_MODEL, vllm("v1/attention/backends: supported kv cache dtypes")),
        if_higher="16 bit: no loss of precision, half the tokens in the same memory.",
        if_lower=(
            "8 bit: up to twice the tokens and half the cache reads; near lossless, with a slight "
            "loss reported above 64K tokens of context."
        ),
        confidence="medium" if value else "high",
    )


def _cache_reason(case: Case) -> str:
    problem, value = case.problem, case.config.kv_cache_dtype
    if case.is_pinned("kv_cache_dtype"):
        return "Fixed by the request."
    if value is not None:
        return (
            "An 8-bit cache holds up to twice the tokens and is read in half the time; the gain "
            "for this load is larger than what is asked of a change that may cost precision."
        )
    quantization = problem.spec.quantization
    if quantization is not None and quantization.kv_cache_bits is not None:
        return "The checkpoint brings its own scheme for the cache, which vLLM follows by itself."
    if not problem.constraints.allow_fp8_kv_cache:
        return "Left at the model's format: the request forbids an 8-bit cache."
    kind = problem.node.gpu.kind
    return (
        f"Left at the model's format: an 8-bit cache either does not run surely on this {kind} and "
        "release, or gains too little for this load to risk precision."
    )


def block_size(case: Case) -> Decision:
    """Return why blocks are left to vLLM."""
    if case.is_pinned("block_size"):
        value, reason = case.config.block_size, "Fixed by the request."
    else:
        value = None
        reason = (
            "Left to vLLM: each attention backend brings the block it is fastest with, CUDA "
            "backends take only multiples of 16, and latent or hybrid models choose their own. "
            "The 8 and 32 of older guides are refused or gain nothing."
        )
    return decision(
        "block_size",
        value,
        rule="CHO013",
        reason=reason,
        inputs={"block_tokens": [group.block_tokens for group in case.sized.kv.groups]},
        source=(vllm("platforms/cuda.py and v1/attention/backends"),),
        if_higher="Fewer table entries, more waste in the last block, coarser prefix reuse.",
        if_lower="Finer prefix reuse; below 16 no CUDA backend starts.",
        confidence="high",
    )


def dtype(case: Case) -> Decision:
    """Return why the number format of activations is set or left."""
    value = case.config.dtype
    if case.is_pinned("dtype"):
        reason = "Fixed by the request."
    elif value is not None:
        reason = (
            "The checkpoint is bfloat16, which this GPU does not compute (compute capability "
            "below 8.0); vLLM would fall back with a warning, so it is written down."
        )
    else:
        reason = (
            f"Left at auto: the checkpoint's {case.problem.spec.dtype} runs here, and forcing "
            "float16 on bfloat16 weights can overflow."
        )
    return decision(
        "dtype",
        value,
        rule="CHO014",
        reason=reason,
        source=(vllm("platforms/cuda.py and config/model.py"),),
        if_higher="float32 doubles weights and cache for no gain in serving.",
        if_lower="8-bit weights come from a quantised checkpoint, not from this setting.",
        confidence="high",
    )
