"""Rules of environment variables, and of code that comes with a checkpoint."""

from collections.abc import Iterator

from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    number,
    positive_int,
    thread,
    vllm,
    with_model,
)
from service.tuning.rules.package_data import holds_for, read_rules_data

_ESTIMATE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
_PARTITION = "VLLM_PP_LAYER_PARTITION"
_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_TIGHT_SHARE = 0.93


def _gone(context: RuleContext) -> Iterator[Remark]:
    for name, entry in read_rules_data("environment")["gone"].items():
        if name in context.env and holds_for(entry, context.version):
            yield Remark(
                setting=name,
                message=f"{name} is ignored or refused in vLLM {context.version.text}:"
                f" {entry['why']}.",
                suggestion=entry["instead"],
            )


def _estimate_off(context: RuleContext) -> Iterator[Remark]:
    share = number(context.effective.gpu_memory_utilization) or 0.0
    is_eager = context.effective.enforce_eager is True
    if context.env.get(_ESTIMATE) == "0" and share >= _TIGHT_SHARE and not is_eager:
        yield Remark(
            message=f"With {_ESTIMATE}=0 nothing is set aside for CUDA graphs, and at"
            f" gpu_memory_utilization={share:g} little is left for them: capture may run out.",
            suggestion="Remove the variable, or lower the share by the size of the graphs.",
        )


def _layer_partition(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    text = context.env.get(_PARTITION)
    if text is None:
        return
    parts = [part.strip() for part in text.split(",")]
    is_numeric = all(part.isdigit() for part in parts)
    layers = sum(int(part) for part in parts) if is_numeric else 0
    stages = context.pipeline_parallel_size
    if len(parts) != stages or layers != spec.num_layers:
        yield Remark(
            message=f"{_PARTITION}={text[:64]} has {len(parts)} parts for {layers} layers; the"
            f" model has {spec.num_layers} layers and pipeline_parallel_size is {stages}.",
            suggestion="Give one number per stage that add up to the layers.",
        )


def _expandable_segments(context: RuleContext) -> Iterator[Remark]:
    has_connector = (
        context.given.kv_transfer_config is not None or context.given.kv_offloading_size is not None
    )
    is_expandable = "expandable_segments:true" in context.env.get(_ALLOCATOR, "").lower()
    if has_connector and is_expandable and context.given.enable_cumem_allocator is not True:
        yield Remark(
            message="Expandable segments and a KV connector exclude each other: connectors need"
            " addresses that stay.",
            suggestion=f"Remove expandable_segments from {_ALLOCATOR}.",
        )


def _cpu_space(context: RuleContext) -> Iterator[Remark]:
    if _CPU_SPACE in context.env and positive_int(context.given.kv_cache_memory_bytes):
        yield Remark(
            message=f"{_CPU_SPACE} silently wins over kv_cache_memory_bytes.",
            suggestion="Keep one of the two.",
        )


def _remote_code(context: RuleContext) -> Iterator[Remark]:
    if context.given.trust_remote_code is True:
        yield Remark(
            message="Python code from the checkpoint runs in the server. Most models need none,"
            " since vLLM brings its own.",
            suggestion="Leave trust_remote_code out unless the model needs it, and pin revision.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="ENV001",
        title="Environment variables that are gone",
        help="vLLM drops variables without a word: the server starts, and the choice is not"
        " made. Most became settings.",
        settings=(),
        severity="warning",
        source=(
            vllm("envs.py"),
            thread("PR 259", repository="runpod-workers/worker-vllm"),
            thread("issue 29670"),
        ),
        check=_gone,
    ),
    Rule(
        id="ENV002",
        title="CUDA graphs without memory of their own",
        help="The estimate is subtracted from the cache since 0.20.0. Switched off, graphs come"
        " on top of the share.",
        settings=(_ESTIMATE,),
        severity="warning",
        since="0.18.0",
        source=(thread("issue 34", repository="wtdcode/vllm-backport"),),
        check=_estimate_off,
    ),
    Rule(
        id="ENV003",
        title="The layer partition matches the model",
        help="VLLM_PP_LAYER_PARTITION gives the layers of each pipeline stage.",
        settings=(_PARTITION,),
        severity="error",
        source=(vllm("distributed/utils.py: get_pp_indices"),),
        check=with_model(_layer_partition),
    ),
    Rule(
        id="ENV004",
        title="Expandable segments and KV connectors",
        help="A KV connector registers memory by address; expandable segments may move it.",
        settings=(_ALLOCATOR,),
        severity="error",
        since="0.33.0",
        source=(vllm("config/vllm.py"),),
        check=_expandable_segments,
    ),
    Rule(
        id="ENV005",
        title="Two sizes for the CPU cache",
        help="On the CPU backend the variable, in whole GiB, overrides the setting in bytes.",
        settings=(_CPU_SPACE,),
        severity="warning",
        source=(vllm("a start on the CPU backend of 0.32.0", version="0.32.0"),),
        check=_cpu_space,
    ),
    Rule(
        id="ENV006",
        title="Code from the checkpoint",
        help="trust_remote_code lets a model repository run its Python files with the rights of"
        " the server. It is never recommended by itself.",
        settings=("trust_remote_code",),
        severity="warning",
        source=(vllm("config/model.py"),),
        check=_remote_code,
    ),
)
