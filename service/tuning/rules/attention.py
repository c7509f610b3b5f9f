"""Rules of cache blocks and of the attention backend that works in them."""

from collections.abc import Iterator

from service.tuning.engine.facts import choices
from service.tuning.engine.platform import is_cpu
from service.tuning.hardware.spec import Node
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
)
from service.tuning.rules.domains import has_latent_attention
from service.tuning.rules.package_data import read_rules_data
from service.tuning.rules.support import parse_capability

_BLOCK = ("block_size",)
_CUDA_BLOCK_STEP = 16
_CPU_BLOCK_STEP = 32


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


RULES: tuple[Rule, ...] = (
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
)
