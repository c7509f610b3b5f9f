"""Rules of quantised weights: which GPU and release load them."""

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
from service.tuning.rules.support import is_weight_only, minimum_capability

_SETTING = ("quantization",)
_ONLINE = frozenset(
    {"fp8", "online", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "mxfp8", "mxfp4"}
    | {"int8_per_channel_weight_only", "nvfp4_per_token", "experts_int8", "bitsandbytes"}
    | {"torchao", "deepspeedfp", "ipex", "rtn", "humming", "inc"}
)
"""Methods that also turn 16-bit weights while loading."""

_AMPERE = (8, 0)
_MODELOPT_PREVAILS_SINCE = "0.20.0"
"""Checkpoints of ModelOpt name their own method whatever is asked for (logs of 0.20.0 and 0.20.2;
layers/quantization/modelopt.py, 0.33.0)."""


def stated_method(context: RuleContext) -> str | None:
    """Return the method that the settings name, spelt as vLLM lists it."""
    method = context.given.quantization
    return None if method is None else method.lower().replace("auto_round", "auto-round")


def _method(context: RuleContext) -> str | None:
    quantization = context.spec.quantization if context.spec is not None else None
    return stated_method(context) or (quantization.method if quantization is not None else None)


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
        name = scheme.split("_")[0]
        yield Remark(
            message=f"{node.gpu.name} has no {name} arithmetic: the weights save memory, but every"
            " product runs in 16 bit.",
            suggestion="Fine for memory and decode speed; for prefill speed use a part with"
            " that arithmetic.",
        )


def _mismatch(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    method, stored = stated_method(context), spec.quantization
    if method is None or any(_unknown(context)):
        # A method that the release does not know matches nothing: one finding says so.
        return
    if stored is None:
        if method not in _ONLINE:
            yield Remark(
                message=f"quantization={method}, but the checkpoint carries no such weights.",
                suggestion=f"Use a checkpoint made with {method}, or leave quantization out.",
            )
        return
    if stored.method.startswith("modelopt") and context.version.since(_MODELOPT_PREVAILS_SINCE):
        return
    if method not in method_family(stored.method):
        yield Remark(
            message=f"quantization={method} does not match the checkpoint, which says"
            f" {stored.method}.",
            suggestion="Leave quantization out: vLLM reads the method from the checkpoint.",
        )


def method_family(method: str) -> set[str]:
    """Return the methods that load the same checkpoints as this one, itself included."""
    members = {method}
    for family in read_rules_data("quantization")["families"].values():
        if isinstance(family, list) and method in family:
            members.update(family)
    return members


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
    method = stated_method(context)
    data = read_rules_data("quantization")
    if method is None or method in data["plugins"]:
        return
    if method in data["out_of_tree"]:
        plugin = data["out_of_tree"][method]
        yield Remark(
            severity="note",
            message=f"quantization={method} comes with the plugin {plugin}; without it vLLM refuses"
            " to start.",
            suggestion=f"Make sure that the image has {plugin}.",
        )
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


def _bitsandbytes(context: RuleContext) -> Iterator[Remark]:
    if _method(context) == "bitsandbytes":
        yield Remark(
            message="bitsandbytes unpacks its weights in every step and is far slower than AWQ"
            " or GPTQ under load.",
            suggestion="Use it to try a model out; serve an AWQ, GPTQ or fp8 checkpoint.",
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
        id="QNT013",
        title="bitsandbytes is for trying out",
        help="It needs no calibration and quantises while loading, but its kernels are slow at"
        " any batch size.",
        settings=_SETTING,
        severity="warning",
        source=(thread("issue 8743"), guide("A10")),
        check=_bitsandbytes,
    ),
)
