"""Rules of admission, policies and modes."""

from collections.abc import Iterator

from service.tuning.lengths import mean_tokens
from service.tuning.memory.plan import KvPlan, MemoryPlan
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    number,
    positive_int,
    thread,
    vllm,
    with_plan,
)

_BUDGET = ("max_num_batched_tokens",)
_SEQS = ("max_num_seqs",)
_MANY_SEQS = 1024


def _many_seqs(context: RuleContext) -> Iterator[Remark]:
    seqs = positive_int(context.given.max_num_seqs)
    if seqs is not None and seqs > _MANY_SEQS:
        yield Remark(
            message=f"max_num_seqs={seqs} is beyond what measurements found useful (little gain"
            " above 384); the sampler's warm-up alone works on as many rows of logits.",
            suggestion="Size it from the cache: tokens / mean request, then 70 to 80 % of that.",
        )


def sequence_limit(kv_cache_tokens: float, *, mean_tokens: float) -> int:
    """Return how many requests of this mean length the KV cache holds at once.

    The guides' theoretical limit; production takes 0.7 to 0.8 of it.
    """
    return int(kv_cache_tokens // mean_tokens) if mean_tokens > 0 else 0


def _seqs_beyond_cache(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    seqs, workload, kv = context.given.max_num_seqs, context.workload, plan.kv
    if positive_int(seqs) is None or seqs is None or kv is None or workload is None:
        return
    if workload.prompt_tokens is None or workload.output_tokens is None:
        return
    mean = mean_tokens(workload.prompt_tokens) + mean_tokens(workload.output_tokens)
    held_once = _shared_blocks(context, kv)
    blocks = max(1, kv.decoding_blocks(max(1, round(mean))) - held_once)
    limit = sequence_limit(max(1, kv.num_blocks - held_once), mean_tokens=blocks)
    if seqs > limit > 0:
        yield Remark(
            message=f"The cache holds about {limit} requests of {mean:.0f} tokens, fewer than"
            f" max_num_seqs={seqs}: beyond that requests are preempted and computed again.",
            suggestion=f"{round(limit * 0.75)} leaves room for longer ones.",
        )


def _shared_blocks(context: RuleContext, kv: KvPlan) -> int:
    """Return the blocks of a shared prefix, which prefix caching holds once for all requests."""
    tokens = context.workload.shared_prefix_tokens if context.workload is not None else None
    all_full = all(group.kind == "full" for group in kv.groups)
    if not tokens or not all_full or context.effective.enable_prefix_caching is False:
        return 0
    return sum(tokens // group.block_tokens for group in kv.groups)


def _async_default(context: RuleContext) -> Iterator[Remark]:
    if context.given.async_scheduling is True:
        yield Remark(
            message="Async scheduling is on by itself wherever it can be.",
            suggestion="Leave async_scheduling out.",
        )


def _async_off(context: RuleContext) -> Iterator[Remark]:
    if context.given.async_scheduling is False:
        yield Remark(
            severity="warning",
            message="With async scheduling off, each step waits for the CPU to plan the next.",
            suggestion="Leave async_scheduling out.",
        )


def _throughput_mode(context: RuleContext) -> Iterator[Remark]:
    mode = context.given.performance_mode
    if mode not in {"throughput", "interactivity"}:
        return
    pinned = [name for name in (*_SEQS, *_BUDGET) if getattr(context.given, name) is not None]
    if mode == "throughput" and len(pinned) == len(_SEQS + _BUDGET):
        yield Remark(
            message="performance_mode=throughput only doubles the defaults of max_num_seqs and"
            " max_num_batched_tokens; both are set, so it does nothing.",
            suggestion="Leave performance_mode out.",
        )
    elif mode == "throughput":
        yield Remark(
            message="performance_mode=throughput doubles the default batch limits, and with them"
            " activation memory and the time of a step.",
            suggestion="Set max_num_seqs and max_num_batched_tokens yourself instead.",
        )


def _policy(context: RuleContext) -> Iterator[Remark]:
    policy, version = context.given.scheduling_policy, context.version
    if policy is None or policy == "fcfs":
        return
    is_early = policy == "priority" and version.since("0.8.0") and not version.since("0.9.2")
    if policy != "priority" or is_early:
        yield Remark(
            message=f"scheduling_policy={policy[:64]} is not known to this release's engine.",
            suggestion="Use fcfs" + (", or 0.9.2 and newer for priority." if is_early else "."),
        )


def _fractions(context: RuleContext) -> Iterator[Remark]:
    watermark = number(context.given.watermark)
    if watermark is not None and not 0 <= watermark < 1:
        yield Remark(
            message=f"watermark={watermark:g} is outside 0 to 1 (1 excluded): refused.",
            suggestion="It is the share of cache blocks kept free; 0 is the default.",
        )


_AT_LEAST_ONE = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "prefill_context_parallel_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "stream_interval",
    "prefill_schedule_interval",
    "num_gpu_blocks_override",
    "max_loras",
    "max_lora_rank",
)


def _out_of_range(context: RuleContext) -> Iterator[Remark]:
    for name in _AT_LEAST_ONE:
        value = getattr(context.given, name)
        if value is not None and positive_int(value) is None:
            yield Remark(
                setting=name,
                message=f"{name}={str(value)[:64]} is refused: it is a whole number from 1 up.",
                suggestion="Leave it out for the default.",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        id="SCH007",
        title="Far more sequences than measurements support",
        help="Throughput flattens around 256 to 384 concurrent requests on most parts, while"
        " sampler memory, graph sizes and time per token grow.",
        settings=_SEQS,
        severity="warning",
        source=(thread("issue 14632"), guide("A4")),
        check=_many_seqs,
    ),
    Rule(
        id="SCH008",
        title="More sequences than the cache holds",
        help="KV pool / tokens of a mean request is the theoretical limit. A cap above it lets"
        " requests in that are preempted later. 70 to 80 % of it is the guides' production"
        " value, half of it where a load test starts.",
        settings=_SEQS,
        severity="warning",
        source=(guide("A4"),),
        check=with_plan(_seqs_beyond_cache),
    ),
    Rule(
        id="SCH013",
        title="Async scheduling is already on",
        help="Since 0.14.0 it is chosen wherever executor and speculation allow.",
        settings=("async_scheduling",),
        severity="note",
        since="0.14.0",
        source=(vllm("config/vllm.py"),),
        check=_async_default,
    ),
    Rule(
        id="SCH014",
        title="Async scheduling off",
        help="It hides the CPU's planning behind the GPU's step.",
        settings=("async_scheduling",),
        severity="warning",
        since="0.14.0",
        source=(vllm("config/vllm.py"),),
        check=_async_off,
    ),
    Rule(
        id="SCH015",
        title="What performance_mode really does",
        help="throughput doubles the default batch limits, interactivity captures small graphs"
        " one by one. Nothing else was found in 0.33.0.",
        settings=("performance_mode",),
        severity="note",
        since="0.17.0",
        source=(vllm("engine/arg_utils.py; config/vllm.py"),),
        check=_throughput_mode,
    ),
    Rule(
        id="SCH016",
        title="The scheduling policy is known",
        help="fcfs or priority; the V1 engine knows priority since 0.9.2.",
        settings=("scheduling_policy",),
        severity="error",
        source=(vllm("config/scheduler.py"),),
        check=_policy,
    ),
    Rule(
        id="SCH017",
        title="The watermark is a share below 1",
        help="The share of cache blocks that admission keeps free.",
        settings=("watermark",),
        severity="error",
        since="0.24.0",
        source=(vllm("config/scheduler.py"),),
        check=_fractions,
    ),
    Rule(
        id="SCH018",
        title="Counts are whole numbers from 1 up",
        help="Sizes and counts of 0 or less pass the command line and are refused right after.",
        settings=_AT_LEAST_ONE,
        severity="error",
        source=(vllm("config: field limits"),),
        check=_out_of_range,
    ),
)
