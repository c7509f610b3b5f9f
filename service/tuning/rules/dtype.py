"""Rules of the activation type: what the GPU computes, and what overflows."""

from collections.abc import Iterator

from service.tuning.hardware.spec import Node
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    thread,
    vllm,
    with_both,
    with_model,
    with_node,
)
from service.tuning.rules.support import refuses_float16

_SETTING = ("dtype",)
_FLOAT16 = frozenset({"half", "float16"})
_FLOAT32 = frozenset({"float", "float32"})
_NAMES = frozenset({"auto", "bfloat16"}) | _FLOAT16 | _FLOAT32
_MEANT = {"bf16": "bfloat16", "fp16": "float16", "f16": "float16", "fp32": "float32"}
_AMPERE = (8, 0)
_FALLS_BACK = "0.9.0"
"""First release in which dtype auto takes float16 by itself on such GPUs."""


def _lacks_bfloat16(node: Node) -> bool:
    capability = node.gpu.compute_capability
    return capability is not None and capability < _AMPERE


def _explicit_bfloat16(context: RuleContext, node: Node) -> Iterator[Remark]:
    if context.given.dtype == "bfloat16" and _lacks_bfloat16(node):
        yield Remark(
            message=f"{node.gpu.name} does not compute in bfloat16, which needs compute"
            " capability 8.0; vLLM refuses it.",
            suggestion="Set dtype to float16.",
        )


def _auto_bfloat16(context: RuleContext, spec: ModelSpec, node: Node) -> Iterator[Remark]:
    is_auto = context.given.dtype in {None, "auto"}
    if not is_auto or spec.dtype != "bfloat16" or not _lacks_bfloat16(node):
        return
    falls_back = context.version.since(_FALLS_BACK)
    yield Remark(
        severity="warning" if falls_back else "error",
        message=f"The checkpoint is bfloat16 and {node.gpu.name} is not able to compute in it: "
        + ("vLLM falls back to float16." if falls_back else "this release refuses to start."),
        suggestion="Set dtype to float16.",
    )


def _forced_float16(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if context.given.dtype not in _FLOAT16 or spec.dtype != "bfloat16":
        return
    node = context.node
    if node is not None and _lacks_bfloat16(node):
        return
    if not (refuses_float16(spec) and context.version.since("0.9.1")):
        yield Remark(
            message="The weights were trained in bfloat16, whose range is far wider: float16 can"
            " overflow into wrong text.",
            suggestion="Leave dtype at auto.",
        )


def _family_refuses_float16(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if context.given.dtype in _FLOAT16 and refuses_float16(spec):
        yield Remark(
            message=f"{spec.model_type} overflows in float16; vLLM refuses the type for it.",
            suggestion="Leave dtype at auto, on a GPU that computes in bfloat16.",
        )


def _float32(context: RuleContext) -> Iterator[Remark]:
    if context.given.dtype in _FLOAT32:
        yield Remark(
            message="float32 doubles weights and cache, and the attention kernels for serving"
            " run in 16 bit only.",
            suggestion="Leave dtype at auto.",
        )


def _unknown(context: RuleContext) -> Iterator[Remark]:
    dtype = context.given.dtype
    if dtype is None or dtype.lower() in _NAMES:
        return
    meant = _MEANT.get(dtype.lower())
    yield Remark(
        message=f"{dtype[:64]} is no dtype of vLLM.",
        suggestion=f"Write {meant}."
        if meant
        else "Use auto, bfloat16 or float16; 8-bit and 4-bit weights come with the checkpoint.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="DTY001",
        title="bfloat16 needs compute capability 8.0",
        help="V100 and T4 know float16 only. vLLM stops when bfloat16 is asked for by name.",
        settings=_SETTING,
        severity="error",
        source=(vllm("platforms/cuda.py"), thread("issue 946"), thread("issue 1157")),
        check=with_node(_explicit_bfloat16),
    ),
    Rule(
        id="DTY002",
        title="A bfloat16 checkpoint on a GPU without bfloat16",
        help="With dtype auto, releases from 0.9 on fall back to float16 and warn; older ones"
        " stop. Say float16 yourself and check the answers for overflow.",
        settings=_SETTING,
        severity="warning",
        source=(vllm("config/model.py: _resolve_auto_dtype"), thread("issue 1157")),
        check=with_both(_auto_bfloat16),
    ),
    Rule(
        id="DTY003",
        title="float16 on bfloat16 weights can overflow",
        help="bfloat16 has the range of float32, float16 has not. Models trained in bfloat16 may"
        " leave that range, most of all Gemma and GLM-4.",
        settings=_SETTING,
        severity="warning",
        source=(guide("A11"),),
        check=with_model(_forced_float16),
    ),
    Rule(
        id="DTY004",
        title="Families that vLLM refuses in float16",
        help="Gemma 2 and 3 and GLM-4 are known to overflow, so vLLM takes no float16 for them.",
        settings=_SETTING,
        severity="error",
        since="0.9.1",
        source=(vllm("config/model.py"),),
        check=with_model(_family_refuses_float16),
    ),
    Rule(
        id="DTY005",
        title="float32 is not for serving",
        help="It doubles every byte that a step reads, and leaves the tensor cores idle.",
        settings=_SETTING,
        severity="warning",
        source=(guide("A11"),),
        check=_float32,
    ),
    Rule(
        id="DTY006",
        title="The type is one that vLLM knows",
        help="auto, half, float16, bfloat16, float or float32. Short forms such as bf16 are"
        " refused; int8 and int4 describe weights and come with the checkpoint.",
        settings=_SETTING,
        severity="error",
        source=(vllm("config/model.py: ModelDType"),),
        check=_unknown,
    ),
)
