"""Rules of host memory: swap, weights and cache kept outside the GPU."""

from collections.abc import Iterator

from service.tuning.engine.platform import is_cpu
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import MemoryPlan
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    number,
    thread,
    vllm,
    with_node,
    with_plan,
)

_SWAP = ("swap_space",)
_WEIGHTS = ("cpu_offload_gb",)
_CACHE = ("kv_offloading_size",)


def _swap_ignored(context: RuleContext) -> Iterator[Remark]:
    if context.given.swap_space is not None:
        yield Remark(
            message="swap_space does nothing since the V1 engine (0.8.0): preempted requests are"
            " computed again, never swapped.",
            suggestion="Leave it out. Against preemption lower max_num_seqs; for reuse of long"
            " prefixes kv_offloading_size keeps cache in host memory (0.11.1 and newer).",
        )


def _swap_in_v0(context: RuleContext) -> Iterator[Remark]:
    swap = number(context.given.swap_space)
    if swap is not None and swap > 0:
        yield Remark(
            message="Swapping served only requests with several sequences in this old engine;"
            " others are computed again.",
            suggestion="The default of 4 GiB is enough; it goes away with 0.8.0.",
        )


def _weights_on_host(context: RuleContext) -> Iterator[Remark]:
    size = number(context.given.cpu_offload_gb)
    if size is None or size <= 0:
        return
    fits = context.plan is not None and context.plan.fits and _is_small(context.plan)
    yield Remark(
        message=f"cpu_offload_gb={size:g}: these weights cross the bus in every step. One report"
        " found decoding 19 times slower through a forgotten value."
        + (" Here the weights fit the GPU anyway." if fits else ""),
        suggestion="Remove it."
        if fits
        else "Use more GPUs or a quantised checkpoint; if it must be, check in the log that"
        " weights really were offloaded.",
    )


def _is_small(plan: MemoryPlan) -> bool:
    return plan.weights_bytes < 0.6 * plan.total_bytes


def _cache_on_host(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    size = number(context.given.kv_offloading_size)
    if size is None or size <= 0 or plan.kv is None:
        return
    if plan.kv.tokens < 2 * plan.max_model_len:
        yield Remark(
            message=f"The GPU cache of {plan.kv.tokens} tokens holds less than two requests of"
            f" {plan.max_model_len}: a request must fit the GPU anyway, and moving cache back and"
            " forth was slower in such a case (27 % more time to first token).",
            suggestion="Make room on the GPU first: a shorter max_model_len or an 8-bit cache.",
        )


def _cache_without_reuse(context: RuleContext) -> Iterator[Remark]:
    size = number(context.given.kv_offloading_size)
    if size is not None and size > 0 and context.effective.enable_prefix_caching is False:
        yield Remark(
            message="Cache kept in host memory is found again by prefix, and prefix caching is"
            " off.",
            suggestion="Switch prefix caching on, or leave kv_offloading_size out.",
        )


def _beyond_the_host(context: RuleContext, node: Node) -> Iterator[Remark]:
    size = number(context.given.kv_offloading_size) or 0.0
    weights = (number(context.given.cpu_offload_gb) or 0.0) * context.tensor_parallel_size
    if size > 0 and is_cpu(node.gpu):
        yield Remark(
            message="The CPU backend does not start with kv_offloading_size.",
            suggestion="Leave it out: the cache is in host memory already.",
        )
    elif node.host_memory_gib is not None and size + weights > node.host_memory_gib:
        yield Remark(
            setting="kv_offloading_size" if size > 0 else "cpu_offload_gb",
            message=f"{size + weights:.0f} GiB are to be kept in a host memory of"
            f" {node.host_memory_gib:.0f} GiB.",
            suggestion="Leave the system and the loader a part of it.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="OFF001",
        title="swap_space has no effect",
        help="It cushioned preemption in the old engine for a few kinds of requests. The V1"
        " engine never swaps. 0.18.0 removed the setting. Host memory today: kv_offloading_size"
        " for cache, cpu_offload_gb for weights.",
        settings=_SWAP,
        severity="warning",
        since="0.8.0",
        until="0.18.0",
        source=(vllm("config/cache.py", version="0.17.1"), guide("A15")),
        check=_swap_ignored,
    ),
    Rule(
        id="OFF002",
        title="swap_space in the old engine",
        help="Before 0.8.0 only sequence groups (beam search, several answers) were swapped, and"
        " servers stalled over it.",
        settings=_SWAP,
        severity="note",
        until="0.8.0",
        source=(thread("issue 546"), guide("A15")),
        check=_swap_in_v0,
    ),
    Rule(
        id="OFF003",
        title="Weights in host memory cost every step",
        help="Offloaded weights are read over the bus once per step: PCIe is some fifty times"
        " slower than the GPU's memory.",
        settings=_WEIGHTS,
        severity="warning",
        since="0.5.3",
        source=(
            thread("issue 57771"),
            thread("issue 1320", repository="defilantech/LLMKube"),
        ),
        check=_weights_on_host,
    ),
    Rule(
        id="OFF004",
        title="A host cache needs a GPU cache that holds several requests",
        help="Each request lives in the GPU cache while it runs. The host tier only brings"
        " prefixes back.",
        settings=_CACHE,
        severity="warning",
        since="0.11.1",
        source=(thread("issue 1241", repository="LMCache/LMCache"),),
        check=with_plan(_cache_on_host),
    ),
    Rule(
        id="OFF005",
        title="A host cache needs prefix caching",
        help="Blocks in host memory are looked up by the hash of their prefix.",
        settings=_CACHE,
        severity="warning",
        since="0.11.1",
        source=(vllm("config/cache.py"),),
        check=_cache_without_reuse,
    ),
    Rule(
        id="OFF006",
        title="What is offloaded fits the host",
        help="The host tier is allocated and pinned at start. kv_offloading_size counts all"
        " ranks together, cpu_offload_gb each.",
        settings=_CACHE,
        severity="error",
        since="0.5.3",
        source=(vllm("config/cache.py; a start on the CPU backend of 0.32.0", version="0.32.0"),),
        check=with_node(_beyond_the_host),
    ),
)
