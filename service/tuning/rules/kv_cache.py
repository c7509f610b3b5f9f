"""Rules of the KV cache's number format."""

from collections.abc import Iterator

from service.tuning.engine.facts import choices
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    thread,
    vllm,
    with_model,
    with_node,
    with_plan,
)
from service.tuning.rules.domains import has_latent_attention, kv_cache_dtype_support
from service.tuning.rules.kv_support import unknown_kv_cache_dtype

_DTYPE = ("kv_cache_dtype",)
_LONG_CONTEXT_TOKENS = 65_536
"""From here on an 8-bit cache is said to cost accuracy: guide G1."""

_HOPPER = (9, 0)
_FP8 = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2"})
_SCALED_CHECKPOINTS = frozenset({"fp8", "modelopt", "modelopt_mixed", "quark", "fbgemm_fp8"})


def _unknown_type(context: RuleContext) -> Iterator[Remark]:
    dtype = context.given.kv_cache_dtype
    reason = None if dtype is None else unknown_kv_cache_dtype(dtype, context.version)
    if reason is not None:
        known = ", ".join(str(name) for name in choices("kv_cache_dtype", context.version) or ())
        yield Remark(message=reason, suggestion=f"It knows {known}.")


def _unsupported_type(context: RuleContext, node: Node) -> Iterator[Remark]:
    dtype = context.given.kv_cache_dtype
    if dtype is None or unknown_kv_cache_dtype(dtype, context.version) is not None:
        return
    reason = _unsupported_reason(context, node, dtype)
    if reason is not None:
        yield Remark(
            message=f"kv_cache_dtype={dtype} does not run on {node.gpu.name}: {reason}",
            suggestion="Leave kv_cache_dtype out.",
        )


def _unsupported_reason(context: RuleContext, node: Node, dtype: str) -> str | None:
    if context.spec is not None:
        support = kv_cache_dtype_support(context.spec, node.gpu, context.version, dtype)
        return None if support.ok else support.reason
    capability = node.gpu.compute_capability
    is_old = capability is not None and capability < (8, 0)
    return "8-bit floats need compute capability 8.0." if is_old and dtype in _FP8 else None


def _ampere_type(context: RuleContext, node: Node) -> Iterator[Remark]:
    dtype, capability = context.given.kv_cache_dtype, node.gpu.compute_capability
    if dtype not in _FP8 or capability is None or not (8, 0) <= capability < (8, 9):
        return
    if context.spec is not None and has_latent_attention(context.spec):
        return
    backend = str(context.given.attention_backend or "").upper()
    if "TRITON" in backend or backend == "FLASH_ATTN":
        yield Remark(
            severity="error",
            message=f"{backend} keeps no {dtype} cache on compute capability"
            f" {capability[0]}.{capability[1]}.",
            suggestion="Use the FLASHINFER backend, or leave kv_cache_dtype out.",
        )
    elif "FLASHINFER" not in backend:
        yield Remark(
            severity="note" if dtype == "fp8_e5m2" else "warning",
            message=f"On {node.gpu.name} only FlashInfer keeps an 8-bit float cache. Where it is"
            " missing, or a fused kernel meets e4m3, the start fails with an unsupported type."
            " The cache gets smaller, not faster.",
            suggestion="Start it once before relying on it; fp8_e5m2 with 16-bit weights, or auto,"
            " is the safe choice.",
        )


def _scaled_checkpoint(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    quantization = spec.quantization
    if context.given.kv_cache_dtype != "fp8_e5m2" or quantization is None:
        return
    is_scaled = quantization.method in _SCALED_CHECKPOINTS or quantization.kv_cache_bits == 8  # noqa: PLR2004 - bits
    is_packed = quantization.method == "compressed-tensors"
    if is_scaled or is_packed:
        yield Remark(
            severity="error" if is_scaled else "warning",
            message=f"fp8_e5m2 is refused for {quantization.method} checkpoints, which may carry"
            " scales of their own for the cache.",
            suggestion="Use fp8_e4m3 where the GPU allows it, or auto.",
        )


def _sixteen_bit_differs(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    dtype = context.given.kv_cache_dtype
    if dtype not in {"float16", "bfloat16"}:
        return
    model_dtype = {"half": "float16", "auto": spec.dtype}.get(
        context.effective.dtype or "auto", context.effective.dtype or spec.dtype
    )
    if dtype != model_dtype:
        yield Remark(
            message=f"kv_cache_dtype={dtype} differs from the model's {model_dtype}: refused.",
            suggestion="Use auto.",
        )


def _little_gain(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if context.given.kv_cache_dtype in _FP8 and spec.is_hybrid:
        yield Remark(
            message="Only the attention layers of this hybrid get smaller: the recurrent states"
            " stay, so the cache holds 1.0 to 1.8 times the tokens, not twice.",
            suggestion="Compare kv_cache_tokens with and without it.",
        )


def _long_context_accuracy(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if context.given.kv_cache_dtype in _FP8 and plan.max_model_len > _LONG_CONTEXT_TOKENS:
        yield Remark(
            message="An 8-bit cache without calibrated scales loses a little accuracy beyond"
            f" {_LONG_CONTEXT_TOKENS} tokens of context.",
            suggestion="Test long prompts, or use a checkpoint with scales for its cache.",
        )


def _first_engine(context: RuleContext, node: Node) -> Iterator[Remark]:
    capability = node.gpu.compute_capability
    if context.given.kv_cache_dtype in _FP8 and capability is not None and capability < _HOPPER:
        yield Remark(
            message="The V1 engine of this release keeps 8-bit caches on Hopper only; here it falls"
            " back to the first engine, with other defaults and other memory.",
            suggestion="Use 0.11.0 and newer, or leave kv_cache_dtype out.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="KVC001",
        title="The release knows the KV cache type",
        help="Cache types were added over the releases; fp8_e5m2 is the oldest, 4-bit ones came"
        " with 0.20.",
        settings=_DTYPE,
        severity="error",
        source=(vllm("config/cache.py: CacheDType"),),
        check=_unknown_type,
    ),
    Rule(
        id="KVC002",
        title="An attention backend keeps that cache type on the GPU",
        help="8-bit floats need compute capability 8.0 and FlashInfer, 8.9 with Triton, Hopper"
        " with FlashAttention. Turing and Volta have no backend for them.",
        settings=_DTYPE,
        severity="error",
        source=(vllm("v1/attention/backends; platforms/cuda.py"), guide("A8")),
        check=with_node(_unsupported_type),
    ),
    Rule(
        id="KVC003",
        title="8-bit float caches on Ampere hang on FlashInfer",
        help="Compute capability 8.0 to 8.8 cannot compile e4m3 in Triton, and FlashAttention"
        " keeps no 8-bit cache there. FlashInfer does; fp8_e5m2 is the more robust of the two.",
        settings=_DTYPE,
        severity="warning",
        source=(
            thread("issue 26431"),
            thread("PR 24577"),
            thread("docs/KV_MATH.md at 4a29ab57", repository="noonghunna/club-3090"),
        ),
        check=with_node(_ampere_type),
    ),
    Rule(
        id="KVC004",
        title="fp8_e5m2 and checkpoints with scales exclude each other",
        help="Scales of a checkpoint's own are made for e4m3. vLLM refuses e5m2 with fp8"
        " checkpoints, and up to recent releases with any compressed-tensors checkpoint.",
        settings=_DTYPE,
        severity="error",
        source=(vllm("model_executor/layers/attention/attention.py"), thread("issue 39137")),
        check=with_model(_scaled_checkpoint),
    ),
    Rule(
        id="KVC005",
        title="A 16-bit cache has the model's type",
        help="An explicit float16 or bfloat16 cache must equal the model's own type.",
        settings=_DTYPE,
        severity="error",
        since="0.33.0",
        source=(vllm("config/cache.py"),),
        check=with_model(_sixteen_bit_differs),
    ),
    Rule(
        id="KVC006",
        title="An 8-bit cache does little for hybrids",
        help="Recurrent states keep their size. The block grows in tokens instead, and the gain"
        " is between none and 1.8 times.",
        settings=_DTYPE,
        severity="note",
        source=(vllm("platforms/interface.py: _align_hybrid_block_size"), guide("A8")),
        check=with_model(_little_gain),
    ),
    Rule(
        id="KVC007",
        title="8-bit caches at very long context",
        help="Near lossless for ordinary lengths; slight loss is reported above 64K tokens.",
        settings=_DTYPE,
        severity="note",
        source=(guide("A8"),),
        check=with_plan(_long_context_accuracy),
    ),
    Rule(
        id="KVC019",
        title="8-bit caches of the early V1 engine",
        help="Up to 0.10 the V1 engine had them in FlashAttention 3 alone, and any other GPU fell"
        " back to the first engine.",
        settings=_DTYPE,
        severity="note",
        since="0.8.0",
        until="0.11.0",
        source=(vllm("engine/arg_utils.py", version="0.10.2"), thread("PR 24577")),
        check=with_node(_first_engine),
    ),
)
