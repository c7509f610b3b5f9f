"""Rules of the KV cache: its type, its blocks, its attention backend, its reuse by prefix."""

from collections.abc import Iterator

from service.tuning.engine.facts import choices
from service.tuning.engine.platform import is_cpu
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    positive_int,
    thread,
    vllm,
    with_both,
    with_model,
    with_node,
    with_plan,
)
from service.tuning.rules.domains import has_latent_attention, kv_cache_dtype_support
from service.tuning.rules.kv_support import unknown_kv_cache_dtype
from service.tuning.rules.package_data import read_rules_data
from service.tuning.rules.support import parse_capability

_DTYPE = ("kv_cache_dtype",)
_BLOCK = ("block_size",)
_CUDA_BLOCK_STEP = 16
_CPU_BLOCK_STEP = 32
_LONG_CONTEXT_TOKENS = 65_536
"""From here on an 8-bit cache is said to cost accuracy: guide G1."""
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


def _block_step(context: RuleContext) -> Iterator[Remark]:
    size, node = positive_int(context.given.block_size), context.node
    step = _CPU_BLOCK_STEP if node is not None and is_cpu(node.gpu) else _CUDA_BLOCK_STEP
    if size is not None and size % step:
        # Runs with 8 on 0.6.0 are on record; FlashAttention refuses it since 0.6.6.
        is_sure = node is not None and context.version.since("0.6.6")
        yield Remark(
            severity="error" if is_sure else "warning",
            message=f"block_size={size}: every attention backend here wants a multiple of {step}.",
            suggestion="Leave block_size out.",
        )


def _block_choice(context: RuleContext) -> Iterator[Remark]:
    size, allowed = context.given.block_size, choices("block_size", context.version)
    if size is None or positive_int(size) is None or not allowed or size in allowed:
        return
    # The Python class of the first engine does not check what its command line refuses.
    yield Remark(
        severity="warning" if context.version.is_legacy else "error",
        message=f"vLLM {context.version.text} takes block_size"
        f" {', '.join(str(choice) for choice in allowed)}; {size} is refused.",
        suggestion="Leave block_size out.",
    )


def _large_block_in_v0(context: RuleContext, node: Node) -> Iterator[Remark]:
    size = positive_int(context.given.block_size)
    if size is not None and size > 32 and node.gpu.vendor == "nvidia":  # noqa: PLR2004 - V0 kernel
        yield Remark(
            message=f"The paged-attention kernel of this release stops at blocks of 32; {size}"
            " is refused on CUDA.",
            suggestion="Leave block_size out.",
        )


def _needless_block(context: RuleContext) -> Iterator[Remark]:
    size = positive_int(context.given.block_size)
    if size is None or size % _CUDA_BLOCK_STEP:
        return
    if context.spec is not None and context.spec.is_hybrid:
        yield Remark(
            message="vLLM enlarges the block of a recurrent hybrid until a state fits it, so"
            f" block_size={size} is overridden.",
            suggestion="Leave block_size out.",
        )
    elif size != context.effective.block_size or size != _CUDA_BLOCK_STEP:
        yield Remark(
            message=f"block_size={size} saves nothing and may rule out the fastest attention"
            " backend.",
            suggestion="Leave block_size out unless a backend asks for it.",
        )


def _backend_block(context: RuleContext) -> Iterator[Remark]:
    backend = _backend(context)
    facts = read_rules_data("attention_backends")["backends"].get(backend)
    size = positive_int(context.given.block_size)
    if facts is None or size is None:
        return
    step = facts["block_step"]
    if size % step:
        yield Remark(
            message=f"{backend} works in blocks of {step}; block_size={size} does not fit it.",
            suggestion=f"Use a multiple of {step}, or leave block_size out.",
        )


def _backend(context: RuleContext) -> str:
    chosen = context.given.attention_backend or context.env.get("VLLM_ATTENTION_BACKEND") or ""
    return str(chosen).upper()[:64]


def _backend_fits(context: RuleContext, node: Node) -> Iterator[Remark]:
    backend, capability = _backend(context), node.gpu.compute_capability
    facts = read_rules_data("attention_backends")["backends"].get(backend)
    if facts is None or capability is None:
        return
    least = parse_capability(facts["min_cc"])
    allowed = facts.get("majors")
    if capability < least or (allowed is not None and capability[0] not in allowed):
        yield Remark(
            message=f"{backend} has no kernels for {node.gpu.name} (compute capability"
            f" {capability[0]}.{capability[1]}).",
            suggestion="Leave the backend to vLLM.",
        )


def _backend_layers(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    backend = _backend(context)
    facts = read_rules_data("attention_backends")["backends"].get(backend)
    if facts is None or facts["latent"] == has_latent_attention(spec):
        return
    kind = "latent" if facts["latent"] else "grouped-query"
    yield Remark(
        message=f"{backend} is a backend of {kind} attention, which this model does not use.",
        suggestion="Leave the backend to vLLM.",
    )


def _forced_flashinfer(context: RuleContext, spec: ModelSpec, node: Node) -> Iterator[Remark]:
    capability = node.gpu.compute_capability
    is_consumer = capability is not None and capability[0] == 12  # noqa: PLR2004 - sm_12x
    if _backend(context) == "FLASHINFER" and is_consumer and spec.model_type.startswith("gemma4"):
        yield Remark(
            message="FLASHINFER lacks the head size of Gemma 4's full layers on this GPU; forcing"
            " it failed at 0.19.",
            suggestion="Leave the backend to vLLM.",
        )


def _prefix_caching_off(context: RuleContext) -> Iterator[Remark]:
    workload = context.workload
    shared = workload.shared_prefix_tokens if workload is not None else None
    if context.given.enable_prefix_caching is False and shared:
        yield Remark(
            severity="warning",
            message=f"Requests share {shared} tokens, and prefix caching is off: each request"
            " computes them anew.",
            suggestion="Leave enable_prefix_caching at its default.",
        )


def _prefix_caching_default(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    is_default = context.version.since("0.26.0" if spec.is_hybrid else "0.8.0")
    if context.given.enable_prefix_caching is True and is_default:
        yield Remark(
            message="Prefix caching is on by default in this release.",
            suggestion="The setting can go.",
        )


def _prefix_shorter_than_block(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    workload, kv = context.workload, plan.kv
    shared = workload.shared_prefix_tokens if workload is not None else None
    if kv is None or not shared or not context.effective.enable_prefix_caching:
        return
    block = max((group.block_tokens for group in kv.groups if group.kind != "recurrent"), default=0)
    if shared < block:
        yield Remark(
            message=f"The shared prefix of {shared} tokens is shorter than one cache block of"
            f" {block}: it is never reused.",
            suggestion="Only prefixes of at least one block are found again.",
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
        id="KVC008",
        title="Blocks are multiples of 16",
        help="CUDA backends work in blocks of 16 tokens or multiples, the CPU backend in 32. A"
        " block of 8 passes the command line of old releases and fails at start.",
        settings=_BLOCK,
        severity="error",
        source=(vllm("v1/attention/backends: get_supported_kernel_block_sizes"), guide("A3")),
        check=_block_step,
    ),
    Rule(
        id="KVC009",
        title="The release takes that block size",
        help="Up to 0.17 the command line took a fixed list of block sizes.",
        settings=_BLOCK,
        severity="error",
        until="0.18.0",
        source=(vllm("config/cache.py: BlockSize", version="0.17.1"),),
        check=_block_choice,
    ),
    Rule(
        id="KVC010",
        title="Old kernels stop at blocks of 32",
        help="CUDA paged attention knew blocks of 8, 16 and 32 only. Runs with larger ones are on"
        " record for 0.6.0, so the rule starts with the release it was reported for.",
        settings=_BLOCK,
        severity="error",
        since="0.6.4",
        until="0.8.0",
        source=(thread("PR 10938"), thread("issue 11259")),
        check=with_node(_large_block_in_v0),
    ),
    Rule(
        id="KVC011",
        title="Leave the block size to vLLM",
        help="Larger blocks do not speed up long text and smaller ones do not speed up short"
        " text. vLLM raises the size where a backend needs it; hybrids ignore it.",
        settings=_BLOCK,
        severity="note",
        source=(vllm("platforms/cuda.py: get_attn_backend_cls"), guide("A3")),
        check=_needless_block,
    ),
    Rule(
        id="KVC012",
        title="The block size suits the chosen backend",
        help="A backend that is named must find its block size, otherwise vLLM refuses it.",
        settings=_BLOCK,
        severity="error",
        source=(vllm("v1/attention/backends"),),
        check=_backend_block,
    ),
    Rule(
        id="KVC013",
        title="The chosen attention backend has kernels for the GPU",
        help="Naming a backend skips the selection that would avoid it on this GPU.",
        settings=("attention_backend",),
        severity="error",
        source=(vllm("v1/attention/backends: supports_compute_capability"),),
        check=with_node(_backend_fits),
    ),
    Rule(
        id="KVC014",
        title="The chosen attention backend suits the layers",
        help="Latent attention (DeepSeek, Kimi) has backends of its own.",
        settings=("attention_backend",),
        severity="error",
        since="0.12.0",
        source=(vllm("platforms/cuda.py"),),
        check=with_model(_backend_layers),
    ),
    Rule(
        id="KVC015",
        title="FlashInfer and Gemma 4 on consumer Blackwell",
        help="The global layers of Gemma 4 have a head size that FlashInfer lacks there.",
        settings=("attention_backend",),
        severity="warning",
        source=(thread("issue 40677"),),
        check=with_both(_forced_flashinfer),
    ),
    Rule(
        id="KVC016",
        title="Prefix caching pays for shared prefixes",
        help="A fixed system prompt or a growing conversation is computed once. Guides measured 4"
        " to 7 times; switching it off gains nothing in return.",
        settings=("enable_prefix_caching",),
        severity="warning",
        source=(vllm("config/cache.py"), guide("A7")),
        check=_prefix_caching_off,
    ),
    Rule(
        id="KVC017",
        title="Prefix caching is already on",
        help="On since 0.8.0 for decoder models and since 0.26.0 for hybrids.",
        settings=("enable_prefix_caching",),
        severity="note",
        source=(vllm("engine/arg_utils.py"), guide("A7")),
        check=with_model(_prefix_caching_default),
    ),
    Rule(
        id="KVC018",
        title="Prefixes shorter than a block are never found again",
        help="Only whole blocks are reused, and hybrids have blocks of hundreds of tokens.",
        settings=("enable_prefix_caching",),
        severity="note",
        source=(thread("issue 47430"),),
        check=with_plan(_prefix_shorter_than_block),
    ),
)
