"""Rules of the share of memory that is asked for, and of pinned cache sizes."""

import math
from collections.abc import Iterator

from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import GIB, MemoryPlan
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    number,
    positive_int,
    thread,
    vllm,
    with_node,
    with_plan,
)

_SHARE = ("gpu_memory_utilization",)
_POOL = ("kv_cache_memory_bytes",)
_RISKY_SHARE = 0.95
_LOW_SHARE = 0.7
_HOST_GIB = 20.0
"""What the system of a 122 GiB GB10 holds at boot: free was 101.3 GiB in one report."""

_HOST_FRACTION = 0.4
"""The same for small boards such as a 16 GB Jetson."""


def _share(context: RuleContext) -> float | None:
    return number(context.effective.gpu_memory_utilization)


def _impossible_share(context: RuleContext) -> Iterator[Remark]:
    share = number(context.given.gpu_memory_utilization)
    if share is not None and not 0 < share <= 1:
        yield Remark(
            message=f"gpu_memory_utilization={share:g} is no share of the GPU's memory.",
            suggestion="Use a value above 0 and up to 1; 0.85 to 0.92 is usual.",
        )


def _risky_share(context: RuleContext) -> Iterator[Remark]:
    share = number(context.given.gpu_memory_utilization)
    if share is not None and _RISKY_SHARE < share <= 1:
        yield Remark(
            message=f"gpu_memory_utilization={share:g} leaves under 5 % of the GPU for all that"
            " vLLM does not count: library handles, fragmentation, a burst of long prompts.",
            suggestion="0.85 to 0.92 in production; above 0.95 only on measured head-room.",
        )


def _high_share(context: RuleContext) -> Iterator[Remark]:
    share = number(context.given.gpu_memory_utilization)
    default = 0.92 if context.version.since("0.20.0") else 0.9
    if share is not None and default < share <= _RISKY_SHARE:
        yield Remark(
            message=f"gpu_memory_utilization={share:g} is above this release's default of"
            f" {default:g}. Higher is not always faster: guides saw 15 % less throughput at 0.95"
            " through preemption.",
            suggestion="Keep it only if at least 5 GB stay free at peak.",
        )


def _low_share(context: RuleContext, node: Node) -> Iterator[Remark]:
    share = number(context.given.gpu_memory_utilization)
    is_shared = node.used_memory_gib > 0 or node.gpu.unified_memory
    if share is not None and 0 < share < _LOW_SHARE and not is_shared:
        yield Remark(
            message=f"gpu_memory_utilization={share:g} leaves {(1 - share) * 100:.0f} % of a GPU"
            " unused that nobody else is said to hold.",
            suggestion="Raise it to 0.85 or more, or state used_memory_gib of the others.",
        )


def _not_free(context: RuleContext, node: Node) -> Iterator[Remark]:
    share = number(context.given.gpu_memory_utilization)
    if context.plan is not None or share is None or not 0 < share <= 1:
        return
    free = node.total_memory_gib - node.used_memory_gib
    if free < share * node.total_memory_gib:
        most = math.floor(free / node.total_memory_gib * 100) / 100
        yield Remark(
            message=f"{share * node.total_memory_gib:.2f} GiB are requested, but only {free:.2f}"
            f" of {node.total_memory_gib:.2f} GiB are free: vLLM refuses to start.",
            suggestion=f"Free the GPU, or set gpu_memory_utilization to {most:g} or less.",
        )


def _others_counted(context: RuleContext, node: Node) -> Iterator[Remark]:
    share, used = _share(context), node.used_memory_gib
    if share is None or used <= 0:
        return
    taken = used / node.total_memory_gib
    yield Remark(
        severity="error" if share <= taken else "warning",
        message=f"This release counts memory of other processes ({used:.1f} GiB) into its own"
        f" share: of gpu_memory_utilization={share:g} only {max(0.0, share - taken):.2f} are left"
        " for the model.",
        suggestion=f"Add {taken:.2f} to the share that the model needs, or use 0.9.1 and newer,"
        " which count only their own.",
    )


def _unified(context: RuleContext, node: Node) -> Iterator[Remark]:
    share, total = _share(context), node.total_memory_gib
    if share is None or not node.gpu.unified_memory:
        return
    needed = min(_HOST_GIB, _HOST_FRACTION * total)
    most = math.floor((1 - needed / total) * 100) / 100
    if share > most:
        yield Remark(
            message=f"{node.gpu.name} shares its memory with the host: at"
            f" gpu_memory_utilization={share:g} the system keeps {(1 - share) * total:.1f} GiB,"
            f" about {needed:.0f} are in use after boot.",
            suggestion=f"Set it to {most:g} or less.",
        )


def _pinned_pool(context: RuleContext) -> Iterator[Remark]:
    if positive_int(context.given.kv_cache_memory_bytes):
        yield Remark(
            message="kv_cache_memory_bytes replaces gpu_memory_utilization and skips the check"
            " of what the profile run needs: a wrong value runs out of memory under load.",
            suggestion="Prefer gpu_memory_utilization, above all on desktops and shared memory.",
        )


def _pool_too_large(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    pool = positive_int(context.given.kv_cache_memory_bytes)
    used = context.node.used_memory_gib if context.node is not None else 0.0
    if pool is None:
        return
    free = plan.total_bytes - used * GIB
    needed = pool + plan.weights_bytes + plan.activation_bytes
    if needed > free:
        yield Remark(
            message=f"{pool / GIB:.2f} GiB of cache, {plan.weights_bytes / GIB:.2f} of weights and"
            f" {plan.activation_bytes / GIB:.2f} of activations exceed the {free / GIB:.2f} GiB"
            " that are free.",
            suggestion=f"At most {max(0.0, (pool + free - needed) / GIB):.2f} GiB are left for the"
            " cache.",
        )


def _block_override(context: RuleContext) -> Iterator[Remark]:
    if positive_int(context.given.num_gpu_blocks_override):
        yield Remark(
            message="num_gpu_blocks_override ignores the memory that was measured.",
            suggestion="Use it in tests of preemption only.",
        )


def _negative_pool(context: RuleContext) -> Iterator[Remark]:
    pool = number(context.given.kv_cache_memory_bytes)
    if pool is not None and pool < 0:
        yield Remark(
            message=f"kv_cache_memory_bytes={pool:g} leaves no cache: vLLM takes it as it is.",
            suggestion="State the bytes of the cache, or leave it out.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="MEM001",
        title="gpu_memory_utilization is a share",
        help="Above 0 and up to 1. It is a share of the whole GPU, not of what is free.",
        settings=_SHARE,
        severity="error",
        source=(vllm("config/cache.py: CacheConfig"), guide("A2")),
        check=_impossible_share,
    ),
    Rule(
        id="MEM002",
        title="A share above 0.95",
        help="vLLM plans its cache to the last block of the share. What it cannot count comes out"
        " of the rest.",
        settings=_SHARE,
        severity="warning",
        source=(guide("A2"), thread("issue 16199")),
        check=_risky_share,
    ),
    Rule(
        id="MEM003",
        title="A share above the default",
        help="The default is 0.92 since 0.20.0 (graphs are inside the share since then) and 0.9"
        " before. Raise it only while several GB stay free at peak.",
        settings=_SHARE,
        severity="note",
        source=(vllm("config/cache.py: CacheConfig"), guide("A2")),
        check=_high_share,
    ),
    Rule(
        id="MEM004",
        title="The requested share is free",
        help="vLLM compares free memory with its share of the total before it loads anything."
        " Desktops, other models and exporters count. CAP006 says the same of a full plan.",
        settings=_SHARE,
        severity="error",
        since="0.9.1",
        source=(vllm("v1/worker/utils.py: request_memory"),),
        check=with_node(_not_free),
    ),
    Rule(
        id="MEM005",
        title="Old releases count other processes into their share",
        help="From 0.6.4 to 0.9.0 the share includes what others hold. A second server on the"
        " same GPU needs a larger share than the first. Since 0.9.1 each counts its own.",
        settings=_SHARE,
        severity="warning",
        since="0.6.4",
        until="0.9.1",
        source=(thread("issue 10643"), thread("issue 14376"), thread("PR 18974")),
        check=with_node(_others_counted),
    ),
    Rule(
        id="MEM006",
        title="A share that leaves the GPU idle",
        help="Memory that is not requested serves nobody. Low shares make sense beside another"
        " process or on memory shared with the host.",
        settings=_SHARE,
        severity="note",
        source=(guide("A2"),),
        check=with_node(_low_share),
    ),
    Rule(
        id="MEM007",
        title="Memory shared with the host",
        help="On GB10, Grace and Jetson parts the operating system lives in the same memory. Too"
        " large a share freezes the machine instead of failing.",
        settings=_SHARE,
        severity="warning",
        source=(
            thread("issue 47", repository="MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks"),
            thread("issue 795", repository="dusty-nv/jetson-containers"),
        ),
        check=with_node(_unified),
    ),
    Rule(
        id="MEM008",
        title="A pinned cache size skips the profile's safety",
        help="The bytes are taken as they are, whatever activations and graphs need.",
        settings=_POOL,
        severity="warning",
        source=(
            vllm("v1/worker/gpu_worker.py: determine_available_memory"),
            thread("issue 9", repository="AEON-7/vllm-ultimate-dgx-spark"),
        ),
        check=_pinned_pool,
    ),
    Rule(
        id="MEM009",
        title="The pinned cache fits beside the weights",
        help="Cache, weights and activations together must stay within free memory.",
        settings=_POOL,
        severity="error",
        source=(thread("issues 21 and 12", repository="syv-ai/qwen38-27b-rtx3090"),),
        check=with_plan(_pool_too_large),
    ),
    Rule(
        id="MEM016",
        title="A pinned cache size is no less than nothing",
        help="Zero counts as not stated; anything else is taken as it is.",
        settings=_POOL,
        severity="error",
        source=(vllm("v1/worker/gpu_worker.py: determine_available_memory"),),
        check=_negative_pool,
    ),
    Rule(
        id="MEM010",
        title="A fixed number of blocks is for tests",
        help="It plans as if there were that many blocks, whether or not they fit.",
        settings=("num_gpu_blocks_override",),
        severity="warning",
        source=(vllm("config/cache.py"),),
        check=_block_override,
    ),
)
