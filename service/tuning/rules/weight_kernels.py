"""Rules of quantised weights: which kernel runs, and how shards fit it."""

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
    with_model,
    with_node,
)
from service.tuning.rules.quantization import method_family, stated_method
from service.tuning.rules.sharding import (
    misaligned_expert_shard,
    refined_expert_block,
    unpadded_width,
)
from service.tuning.rules.tensor_parallel import obstacle_check
from service.tuning.rules.widths import Split

_SETTING = ("quantization",)
_SLOW_NAMES = {"awq": "awq_marlin", "gptq": "gptq_marlin"}
_AMPERE = (8, 0)
_MARLIN_SINCE = {"awq": "0.5.4", "gptq": "0.4.1"}


def _slow_kernel(context: RuleContext, node: Node) -> Iterator[Remark]:
    method, capability = stated_method(context), node.gpu.compute_capability
    if method not in _SLOW_NAMES or capability is None or capability < _AMPERE:
        return
    if context.version.since(_MARLIN_SINCE[method]):
        yield Remark(
            message=f"quantization={method} forces the old kernel although this GPU runs"
            f" {_SLOW_NAMES[method]}: 23 against 123 tokens/s were measured for AWQ.",
            suggestion="Leave quantization out.",
        )


def _needless(context: RuleContext) -> Iterator[Remark]:
    method = stated_method(context)
    stored = context.spec.quantization if context.spec is not None else None
    is_slow_name = method in _SLOW_NAMES and not context.version.since("0.24.0")
    if method is None or is_slow_name:
        return
    if (stored is not None and method in method_family(stored.method)) or method in _SLOW_NAMES:
        yield Remark(
            message="The method is read from the checkpoint; saying it again can only go wrong.",
            suggestion="Leave quantization out.",
        )


def _split(context: RuleContext) -> Split:
    ranks = context.tensor_parallel_size
    expert_ranks = 1 if context.expert_parallel else ranks * context.data_parallel_size
    return Split(tensor_parallel_size=ranks, expert_ranks=expert_ranks)


def _fp8_blocks(context: RuleContext) -> Iterator[Remark]:
    yield from obstacle_check("fp8_block")(context)
    spec = context.spec
    if spec is None:
        return
    block = refined_expert_block(spec, split=_split(context), version=context.version)
    if block is not None:
        yield Remark(
            severity="warning",
            message="Each rank's share of an expert is no whole number of the checkpoint's fp8"
            f" blocks: the scales are spread over blocks of {block}, which only the Triton kernel"
            " takes; the faster ones of this GPU stay unused.",
            suggestion="Use enable_expert_parallel or a smaller tensor_parallel_size.",
        )


def _expert_groups(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    width = misaligned_expert_shard(spec, split=_split(context))
    if width is not None:
        yield Remark(
            message=f"Each rank holds {width.size // width.ranks} of the expert width"
            f" {width.size}, no whole number of 4-bit groups: such shards fall to a slower"
            " kernel, or fail on the first request.",
            suggestion="Use enable_expert_parallel or a smaller tensor_parallel_size.",
        )


def _old_kernel_types(context: RuleContext) -> Iterator[Remark]:
    if stated_method(context) in _SLOW_NAMES and context.given.dtype == "bfloat16":
        yield Remark(
            message=f"The {stated_method(context)} kernel computes in float16 only; bfloat16 is"
            " refused with it.",
            suggestion="Leave quantization out, or use dtype float16.",
        )


def _unpadded(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    width = unpadded_width(spec)
    if width is not None and context.tensor_parallel_size > 1:
        yield Remark(
            message=f"An MLP of {width} cannot be shared in whole groups. Qwen's own quantised"
            " checkpoints are padded and work; one made without padding is refused or answers"
            " nonsense.",
            suggestion="Check intermediate_size in the checkpoint's config: 29696 is padded.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="QNT004",
        title="Naming awq or gptq picks a slow kernel",
        help="Left alone, vLLM takes the Marlin kernels on compute capability 8.0 and up. Naming"
        " awq or gptq keeps the old ones. Since 0.24.0 both names lead to the same code.",
        settings=_SETTING,
        severity="warning",
        until="0.24.0",
        source=(thread("issue 21376"), vllm("quantization/awq_marlin.py", version="0.9.2")),
        check=with_node(_slow_kernel),
    ),
    Rule(
        id="QNT005",
        title="The quantisation method is read from the checkpoint",
        help="quantization is only needed to turn 16-bit weights while loading. For quantised"
        " checkpoints it repeats what the config says.",
        settings=_SETTING,
        severity="note",
        source=(vllm("config/model.py"), guide("A10")),
        check=_needless,
    ),
    Rule(
        id="QNT006",
        title="Shards are whole fp8 blocks",
        help="Checkpoints with fp8 scales per block of 128 need 128 to divide what each rank"
        " holds. 768-wide experts over four ranks leave 192, which releases up to 0.28 refuse;"
        " later ones spread the scales over blocks of 64, for one kernel alone. Expert"
        " parallelism keeps experts whole.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(
            vllm("quantization/utils/fp8_utils.py; fused_moe/oracle/fp8.py"),
            thread("issues 25292 and 54178"),
        ),
        check=_fp8_blocks,
    ),
    Rule(
        id="QNT007",
        title="Shards are whole quantisation groups",
        help="AWQ and GPTQ keep one scale per group of inputs. If a rank's share of the MLP is"
        " no whole number of groups, the scales cannot be split.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(
            vllm("distributed/utils.py: verify_group_size_divides_partition"),
            thread("issue 2699"),
        ),
        check=obstacle_check("quantization_group"),
    ),
    Rule(
        id="QNT008",
        title="4-bit experts keep whole groups per rank",
        help="Narrow experts cut over many ranks fall off the fast 4-bit kernel. Releases up to"
        " 0.10 failed on the first request; 0.33.0 pads them.",
        settings=("tensor_parallel_size",),
        severity="warning",
        since="0.11.0",
        until="0.33.0",
        source=(thread("issue 17604"), vllm("quantization/utils/marlin_utils.py")),
        check=with_model(_expert_groups),
    ),
    Rule(
        id="QNT012",
        title="The old AWQ and GPTQ kernels compute in float16",
        help="Naming awq or gptq takes the kernels that know float16 only, so bfloat16 with them"
        " is refused. Since 0.24.0 the names lead to newer kernels.",
        settings=_SETTING,
        severity="error",
        until="0.24.0",
        source=(vllm("quantization/awq.py: get_supported_act_dtypes", version="0.9.2"),),
        check=_old_kernel_types,
    ),
    Rule(
        id="QNT014",
        title="Quantised 72B Qwen models need a padded MLP",
        help="29568 inputs are 231 groups of 128, which no even number of ranks shares. The"
        " publisher pads them to 29696 before quantising.",
        settings=("tensor_parallel_size",),
        severity="warning",
        source=(
            thread("issue 831", repository="QwenLM/Qwen3-VL"),
            thread("issue 21695"),
        ),
        check=with_model(_unpadded),
    ),
)
