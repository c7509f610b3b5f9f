"""Rules of the GPU itself: what vLLM runs on, and what a model's layers need."""

from collections.abc import Iterator

from service.tuning.engine.platform import generation
from service.tuning.hardware.spec import Node
from service.tuning.models.spec import GroupedQueryAttention, ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    thread,
    vllm,
    with_both,
    with_node,
)

_VOLTA = (7, 0)
_TURING = (7, 5)
_AMPERE = (8, 0)
_HOPPER = (9, 0)


def _too_old(context: RuleContext, node: Node) -> Iterator[Remark]:
    capability = node.gpu.compute_capability
    if capability is None:
        return
    found = f"{node.gpu.name} (compute capability {capability[0]}.{capability[1]})"
    if capability < _VOLTA:
        yield Remark(
            message=f"{found} is too old: vLLM starts at 7.0.",
            suggestion="Use a Turing part or newer.",
        )
    elif capability < _TURING and context.version.since("0.11.0"):
        yield Remark(
            severity="warning",
            message=f"{found} is in builds for CUDA below 12.8 only; the published images start"
            " at 7.5.",
            suggestion="Check that your build lists 7.0, or use a newer part.",
        )


def _first_engine(context: RuleContext, node: Node) -> Iterator[Remark]:
    capability = node.gpu.compute_capability
    if capability is None or capability >= _AMPERE or context.version.is_legacy:
        return
    if generation(node.gpu, context.version) == "V0":
        yield Remark(
            message=f"On {node.gpu.name} this release falls back to its first engine, with its"
            " defaults and its memory accounting.",
            suggestion="0.11.0 and newer run the V1 engine here.",
        )


def _sinks(context: RuleContext, spec: ModelSpec, node: Node) -> Iterator[Remark]:
    capability = node.gpu.compute_capability
    has_sinks = any(
        isinstance(group.mixer, GroupedQueryAttention) and group.mixer.has_sinks
        for group in spec.layers
    )
    chosen = context.given.attention_backend or context.env.get("VLLM_ATTENTION_BACKEND") or ""
    if capability is None or capability >= _HOPPER or not has_sinks:
        return
    if "TRITON" not in str(chosen).upper():
        yield Remark(
            message="The attention sinks of this model run in FlashAttention 3, which needs"
            f" Hopper; on {node.gpu.name} this release stops with an assertion.",
            suggestion="Set the environment variable VLLM_ATTENTION_BACKEND to"
            " TRITON_ATTN_VLLM_V1, or use 0.11.0 and newer.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="HW010",
        title="The GPU is one that vLLM runs on",
        help="Kernels are built from compute capability 7.0 (Volta) up; newer builds start at 7.5.",
        settings=(),
        severity="error",
        source=(vllm("CMakeLists.txt; docker default list"), thread("issue 14154")),
        check=with_node(_too_old),
    ),
    Rule(
        id="HW011",
        title="Old GPUs fall back to the first engine",
        help="From 0.8 to 0.10 the V1 engine needed compute capability 8.0.",
        settings=(),
        severity="note",
        since="0.8.0",
        until="0.11.0",
        source=(vllm("engine/arg_utils.py", version="0.10.2"),),
        check=with_node(_first_engine),
    ),
    Rule(
        id="HW012",
        title="Attention sinks before Hopper",
        help="gpt-oss adds a learned sink to every head. In 0.10 only FlashAttention 3 and the"
        " Triton backend knew them.",
        settings=("attention_backend",),
        severity="error",
        since="0.10.0",
        until="0.11.0",
        source=(thread("issue 22331"),),
        check=with_both(_sinks),
    ),
)
