"""Rules of quantised weights: which GPU loads them, which flag spoils them, where they go."""

from collections.abc import Iterator

from service.tuning.engine.facts import choices
from service.tuning.engine.versions import NEWEST, EngineVersion
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
from service.tuning.rules.domains import quantization_support
from service.tuning.rules.package_data import read_rules_data
from service.tuning.rules.parallelism import obstacle_check
from service.tuning.rules.sharding import Split, misaligned_expert_shard, unpadded_width
from service.tuning.rules.support import is_weight_only, minimum_capability

_SETTING = ("quantization",)
_ONLINE = frozenset(
    {"fp8", "online", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "mxfp8"}
    | {"int8_per_channel_weight_only", "nvfp4_per_token", "experts_int8", "bitsandbytes"}
    | {"torchao", "deepspeedfp", "ipex", "rtn", "humming", "inc"}
)
"""Methods that also turn 16-bit weights while loading."""
_SLOW_NAMES = {"awq": "awq_marlin", "gptq": "gptq_marlin"}
_AMPERE = (8, 0)
_MARLIN_SINCE = {"awq": "0.5.4", "gptq": "0.4.1"}


def _explicit(context: RuleContext) -> str | None:
    method = context.given.quantization
    return None if method is None else method.lower().replace("auto_round", "auto-round")


def _method(context: RuleContext) -> str | None:
    quantization = context.spec.quantization if context.spec is not None else None
    return _explicit(context) or (quantization.method if quantization is not None else None)


def _unsupported_gpu(context: RuleContext, node: Node) -> Iterator[Remark]:
    method, capability = _method(context), node.gpu.compute_capability
    if method is None or capability is None:
        return
    spec, version = context.spec, context.version
    if spec is not None:
        support = quantization_support(spec, node.gpu, version, method=method)
        message = None if support.ok else support.reason
    else:
        least = minimum_capability(method, quantization=None, version=version)
        is_short = least is not None and capability < least
        message = f"{method} does not load on {node.gpu.name}." if is_short else None
    if message is not None:
        yield Remark(message=message, suggestion=_other_format(method, capability))


def _other_format(method: str, capability: tuple[int, int]) -> str:
    if method.startswith("fp8") and capability >= _AMPERE:
        return "Use a newer vLLM, which loads fp8 weight-only here, or a 4-bit checkpoint."
    return "Use a GPTQ checkpoint (compute capability 6.0 and up), 16-bit weights or a newer GPU."


def _weight_only(context: RuleContext, node: Node) -> Iterator[Remark]:
    method, capability = _method(context), node.gpu.compute_capability
    quantization = context.spec.quantization if context.spec is not None else None
    if capability is None or method is None or capability < (7, 5):
        return
    scheme = quantization.scheme if quantization is not None else method.split("_per_")[0]
    if is_weight_only(scheme, capability):
        yield Remark(
            message=f"{node.gpu.name} has no {scheme} arithmetic: the weights save memory, but"
            " every product runs in 16 bit.",
            suggestion="Fine for memory and decode speed; for prefill speed use a part with"
            " that arithmetic.",
        )


def _mismatch(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    method, stored = _explicit(context), spec.quantization
    if method is None:
        return
    if stored is None:
        if method not in _ONLINE:
            yield Remark(
                message=f"quantization={method}, but the checkpoint carries no such weights.",
                suggestion=f"Use a checkpoint made with {method}, or leave quantization out.",
            )
        return
    if method not in _family(stored.method):
        yield Remark(
            message=f"quantization={method} does not match the checkpoint, which says"
            f" {stored.method}.",
            suggestion="Leave quantization out: vLLM reads the method from the checkpoint.",
        )


def _family(method: str) -> set[str]:
    members = {method}
    for family in read_rules_data("quantization")["families"].values():
        if isinstance(family, list) and method in family:
            members.update(family)
    return members


def _slow_kernel(context: RuleContext, node: Node) -> Iterator[Remark]:
    method, capability = _explicit(context), node.gpu.compute_capability
    if method not in _SLOW_NAMES or capability is None or capability < _AMPERE:
        return
    if context.version.since(_MARLIN_SINCE[method]):
        yield Remark(
            message=f"quantization={method} forces the old kernel although this GPU runs"
            f" {_SLOW_NAMES[method]}: 23 against 123 tokens/s were measured for AWQ.",
            suggestion="Leave quantization out.",
        )


def _needless(context: RuleContext) -> Iterator[Remark]:
    method = _explicit(context)
    stored = context.spec.quantization if context.spec is not None else None
    is_slow_name = method in _SLOW_NAMES and not context.version.since("0.24.0")
    if method is None or is_slow_name:
        return
    if (stored is not None and method in _family(stored.method)) or method in _SLOW_NAMES:
        yield Remark(
            message="The method is read from the checkpoint; saying it again can only go wrong.",
            suggestion="Leave quantization out.",
        )


def _expert_groups(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    ranks = context.tensor_parallel_size
    expert_ranks = 1 if context.expert_parallel else ranks * context.data_parallel_size
    width = misaligned_expert_shard(
        spec, split=Split(tensor_parallel_size=ranks, expert_ranks=expert_ranks)
    )
    if width is not None:
        yield Remark(
            message=f"Each rank holds {width.size // width.ranks} of the expert width"
            f" {width.size}, no whole number of 4-bit groups: such shards fall to a slower"
            " kernel, or fail on the first request.",
            suggestion="Use enable_expert_parallel or a smaller tensor_parallel_size.",
        )


def _plugin(context: RuleContext) -> Iterator[Remark]:
    method = _method(context)
    entry = read_rules_data("quantization")["plugins"].get(method or "")
    if entry is not None and context.version.since(entry["since"]):
        yield Remark(
            message=f"{method} left vLLM with {entry['since']}.",
            suggestion=f"Install {entry['package']} beside vLLM, or use another format.",
        )


def _is_listed(method: str, version: EngineVersion) -> bool:
    return method in (choices("quantization", version) or ())


def _unknown(context: RuleContext) -> Iterator[Remark]:
    method = _explicit(context)
    if method is None or method in read_rules_data("quantization")["plugins"]:
        return
    # Releases after 0.15 know AutoRound checkpoints under the name inc and still take the old one.
    if method != "auto-round" and not _is_listed(method, context.version):
        newer = " Newer releases do." if _is_listed(method, NEWEST) else ""
        yield Remark(
            message=f"vLLM {context.version.text} knows no quantisation {method[:64]}.{newer}",
            suggestion="Leave quantization out: vLLM reads the method from the checkpoint.",
        )


def _deprecated(context: RuleContext) -> Iterator[Remark]:
    method, entry = _method(context), read_rules_data("quantization")["deprecated"]
    if method not in entry["methods"] or not context.version.since(entry["since"]):
        return
    if context.given.allow_deprecated_quantization is not True:
        yield Remark(
            message=f"{method} is deprecated and refused unless it is allowed by name.",
            suggestion="Set allow_deprecated_quantization for now, and plan another format.",
        )


def _old_kernel_types(context: RuleContext) -> Iterator[Remark]:
    if _explicit(context) in _SLOW_NAMES and context.given.dtype == "bfloat16":
        yield Remark(
            message=f"The {_explicit(context)} kernel computes in float16 only; bfloat16 is"
            " refused with it.",
            suggestion="Leave quantization out, or use dtype float16.",
        )


def _bitsandbytes(context: RuleContext) -> Iterator[Remark]:
    if _method(context) == "bitsandbytes":
        yield Remark(
            message="bitsandbytes unpacks its weights in every step and is far slower than AWQ"
            " or GPTQ under load.",
            suggestion="Use it to try a model out; serve an AWQ, GPTQ or fp8 checkpoint.",
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
        id="QNT001",
        title="The GPU loads the weight format",
        help="Each method has a least compute capability, which fell over the releases: fp8"
        " wanted 9.0 at first, 8.0 from 0.5.1 and 7.5 from 0.14.0; AWQ 7.5; GPTQ 6.0.",
        settings=_SETTING,
        severity="error",
        source=(vllm("layers/quantization: get_min_capability"), thread("issue 4202")),
        check=with_node(_unsupported_gpu),
    ),
    Rule(
        id="QNT002",
        title="Weight-only on a GPU without that arithmetic",
        help="fp8 units exist from compute capability 8.9, 4-bit floats on Blackwell. Elsewhere"
        " vLLM unpacks the weights to 16 bit for each product: half the memory, but not the"
        " speed of fp8.",
        settings=_SETTING,
        severity="warning",
        source=(vllm("quantization/fp8.py; marlin_utils_fp8.py"), guide("A10")),
        check=with_node(_weight_only),
    ),
    Rule(
        id="QNT003",
        title="The named method matches the checkpoint",
        help="vLLM refuses a method other than the one that the checkpoint names, and a method"
        " for weights that were never quantised.",
        settings=_SETTING,
        severity="error",
        source=(vllm("config/model.py: _verify_quantization"), guide("A10")),
        check=with_model(_mismatch),
    ),
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
        " holds. 768-wide experts over four ranks leave 192, which is refused; expert"
        " parallelism keeps them whole.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(vllm("quantization/utils/fp8_utils.py"), thread("issue 25292")),
        check=obstacle_check("fp8_block"),
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
        id="QNT009",
        title="Formats that moved into plugins",
        help="GGUF left vLLM with 0.24.0, bitsandbytes with 0.28.0. Each has a package that"
        " brings it back.",
        settings=_SETTING,
        severity="error",
        source=(thread("issue 39583"), thread("PR 43529")),
        check=_plugin,
    ),
    Rule(
        id="QNT010",
        title="The release knows the quantisation method",
        help="Methods come and go: a name that the release does not list is refused.",
        settings=_SETTING,
        severity="error",
        source=(vllm("layers/quantization/__init__.py: QuantizationMethods"),),
        check=_unknown,
    ),
    Rule(
        id="QNT011",
        title="Deprecated methods must be allowed",
        help="A deprecated method is refused without allow_deprecated_quantization.",
        settings=_SETTING,
        severity="error",
        since="0.33.0",
        source=(vllm("layers/quantization/__init__.py: DEPRECATED_QUANTIZATION_METHODS"),),
        check=_deprecated,
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
        id="QNT013",
        title="bitsandbytes is for trying out",
        help="It needs no calibration and quantises while loading, but its kernels are slow at"
        " any batch size.",
        settings=_SETTING,
        severity="warning",
        source=(thread("issue 8743"), guide("A10")),
        check=_bitsandbytes,
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
