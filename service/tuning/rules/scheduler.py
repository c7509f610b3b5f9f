"""Rules of the scheduler: step budget, admission, chunks, policies."""

from collections.abc import Iterator

from service.tuning.hardware.spec import Node
from service.tuning.lengths import max_tokens, mean_tokens
from service.tuning.memory.plan import MemoryPlan
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

_BUDGET = ("max_num_batched_tokens",)
_SEQS = ("max_num_seqs",)
_CHUNKS = ("enable_chunked_prefill",)
_LARGE_BUDGET = 32_768
_SMALL_BUDGET = 1024
_MANY_SEQS = 1024
_MANY_STEPS = 64
"""Steps of one prompt's prefill from which others starve: vllm PR 10235."""


def _budget_below_seqs(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.effective.max_num_batched_tokens)
    seqs = positive_int(context.effective.max_num_seqs)
    if budget is not None and seqs is not None and budget < seqs:
        yield Remark(
            message=f"max_num_batched_tokens={budget} is less than max_num_seqs={seqs}: every"
            " running request needs one token per step.",
            suggestion=f"Raise the budget to {seqs} at least, or lower max_num_seqs.",
        )


def _budget_below_length(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.effective.max_num_batched_tokens)
    length = positive_int(context.effective.max_model_len)
    if context.effective.enable_chunked_prefill is not False or budget is None or length is None:
        return
    if budget < length:
        yield Remark(
            message=f"Without chunked prefill a whole prompt must fit one step, but"
            f" max_num_batched_tokens={budget} is less than max_model_len={length}.",
            suggestion="Leave chunked prefill on, or raise the budget to max_model_len.",
        )


def _budget_beyond_use(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.given.max_num_batched_tokens)
    seqs = positive_int(context.effective.max_num_seqs)
    length = positive_int(context.effective.max_model_len)
    if budget is not None and seqs and length and budget > seqs * length:
        yield Remark(
            message=f"max_num_batched_tokens={budget} is more than all requests together can"
            f" hold ({seqs} x {length}); the rest only costs activation memory.",
            suggestion=f"{seqs * length} is enough.",
        )


def _large_budget(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.given.max_num_batched_tokens)
    if budget is not None and budget > _LARGE_BUDGET:
        yield Remark(
            message=f"A step of {budget} tokens is as good as no chunking: running answers wait"
            " for whole prompts, and the profile run takes activation memory from the cache.",
            suggestion="2048 to 16384 covers chat to batch work.",
        )


def _small_budget(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.given.max_num_batched_tokens)
    if budget is not None and budget <= _SMALL_BUDGET:
        yield Remark(
            message=f"A step of {budget} tokens reads all weights for few prompt tokens: long"
            " prompts take many steps and their first token comes late.",
            suggestion="2048 is a low-latency choice, 8192 a balanced one.",
        )


def _starving_prompts(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.effective.max_num_batched_tokens)
    workload = context.workload
    if budget is None or workload is None or workload.prompt_tokens is None:
        return
    longest = max_tokens(workload.prompt_tokens)
    steps = -(-longest // budget)
    if steps > _MANY_STEPS:
        yield Remark(
            message=f"A prompt of {longest} tokens takes {steps} steps of {budget} tokens, while"
            " the requests behind it wait.",
            suggestion="Raise the budget, or set long_prefill_token_threshold.",
        )


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
    blocks = kv.request_blocks(max(1, round(mean)))
    limit = sequence_limit(kv.num_blocks, mean_tokens=blocks)
    if seqs > limit > 0:
        yield Remark(
            message=f"The cache holds about {limit} requests of {mean:.0f} tokens, fewer than"
            f" max_num_seqs={seqs}: beyond that requests are preempted and computed again.",
            suggestion=f"{round(limit * 0.75)} leaves room for longer ones.",
        )


def _chunks_off(context: RuleContext) -> Iterator[Remark]:
    if context.given.enable_chunked_prefill is not False:
        return
    yield Remark(
        message="Without chunked prefill a long prompt stops every running answer, and this"
        " release does not support switching it off officially.",
        suggestion="Leave it on; the budget sets how much of a prompt goes into a step.",
    )


def _chunks_on(context: RuleContext) -> Iterator[Remark]:
    if context.given.enable_chunked_prefill is True:
        yield Remark(
            message="Chunked prefill is on by default in this release.",
            suggestion="The setting can go.",
        )


def _partial_prefills(context: RuleContext) -> Iterator[Remark]:
    count = context.given.max_num_partial_prefills
    if count is not None and count != 1:
        yield Remark(
            message=f"max_num_partial_prefills={count}: the V1 engine takes 1 only.",
            suggestion="Leave it out; long_prefill_token_threshold lets short prompts pass.",
        )


def _long_prefill_threshold(context: RuleContext) -> Iterator[Remark]:
    threshold = positive_int(context.given.long_prefill_token_threshold)
    length = positive_int(context.effective.max_model_len)
    if threshold is not None and length is not None and threshold > length:
        yield Remark(
            message=f"long_prefill_token_threshold={threshold} is more than max_model_len"
            f"={length}: refused.",
            suggestion="Use a few thousand tokens, or leave it out.",
        )


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


def _unpinned_on_slices(context: RuleContext, node: Node) -> Iterator[Remark]:
    if "MIG" not in node.gpu.name:
        return
    missing = [name for name in (*_SEQS, *_BUDGET) if getattr(context.given, name) is None]
    if missing:
        yield Remark(
            setting=missing[0],
            message="Inside a MIG slice vLLM may fail to read the memory size and then take its"
            f" smallest defaults without a word ({' and '.join(missing)} unset). That cost 28 to"
            " 53 % of throughput in one report.",
            suggestion="Set max_num_seqs and max_num_batched_tokens.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="SCH001",
        title="The step budget covers every running request",
        help="Each running request takes one token of a step, so the budget is at least"
        " max_num_seqs. Raising max_num_seqs alone above the default budget is refused too.",
        settings=_BUDGET,
        severity="error",
        source=(vllm("config/scheduler.py: verify_max_model_len"), guide("A5")),
        check=_budget_below_seqs,
    ),
    Rule(
        id="SCH002",
        title="Without chunked prefill a step holds a whole prompt",
        help="Old releases had chunking off by default below 32K tokens, so a budget below"
        " max_model_len stopped them.",
        settings=_BUDGET,
        severity="error",
        source=(
            vllm("config/scheduler.py: verify_max_model_len"),
            thread("PR 259", repository="verl-project/verl"),
        ),
        check=_budget_below_length,
    ),
    Rule(
        id="SCH003",
        title="A step budget that no load can fill",
        help="More tokens than max_num_seqs x max_model_len can never be scheduled in one step."
        " A budget above max_model_len alone is fine with chunked prefill.",
        settings=_BUDGET,
        severity="warning",
        source=(thread("issue 39976"), thread("PR 40063")),
        check=_budget_beyond_use,
    ),
    Rule(
        id="SCH004",
        title="A very large step budget",
        help="The profile run reserves activation memory for a full step, taken from the cache:"
        " 50000 tokens left 758 blocks where 20480 left 4485. Large steps also delay the tokens"
        " of everyone else.",
        settings=_BUDGET,
        severity="warning",
        source=(thread("issue 2509"), thread("issue 14632"), guide("A5")),
        check=_large_budget,
    ),
    Rule(
        id="SCH005",
        title="A very small step budget",
        help="Every step reads all weights. With 1024 tokens or fewer, long prompts take many"
        " steps and time to first token grows.",
        settings=_BUDGET,
        severity="warning",
        source=(guide("A5"),),
        check=_small_budget,
    ),
    Rule(
        id="SCH006",
        title="Prompts that take very many steps",
        help="A prompt is computed in chunks of the step budget. Above about 64 steps it starves"
        " the requests behind it.",
        settings=_BUDGET,
        severity="warning",
        source=(thread("PR 10235"),),
        check=_starving_prompts,
    ),
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
        id="SCH009",
        title="Chunked prefill stays on",
        help="On by default since 0.8.0. It lets prompts and answers share steps, which is what"
        " keeps the time between tokens even.",
        settings=_CHUNKS,
        severity="warning",
        since="0.8.0",
        source=(vllm("engine/arg_utils.py"), guide("A6")),
        check=_chunks_off,
    ),
    Rule(
        id="SCH010",
        title="Chunked prefill is already on",
        help="Asking for it was useful up to 0.7.",
        settings=_CHUNKS,
        severity="note",
        since="0.8.0",
        source=(vllm("engine/arg_utils.py"), guide("A6")),
        check=_chunks_on,
    ),
    Rule(
        id="SCH011",
        title="Several partial prefills were for the old engine",
        help="The V1 engine stops on any value but 1, and the setting went with 0.27.0.",
        settings=("max_num_partial_prefills",),
        severity="error",
        since="0.8.0",
        until="0.27.0",
        source=(thread("issue 39737"), thread("issue 57413")),
        check=_partial_prefills,
    ),
    Rule(
        id="SCH012",
        title="The long-prefill threshold is below the maximum length",
        help="A threshold above max_model_len could never matter and is refused.",
        settings=("long_prefill_token_threshold",),
        severity="error",
        source=(vllm("config/scheduler.py"),),
        check=_long_prefill_threshold,
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
    Rule(
        id="SCH019",
        title="Batch limits are set by hand on MIG slices",
        help="The defaults depend on the memory that the driver reports, which may be hidden"
        " inside a slice.",
        settings=("max_num_batched_tokens", "max_num_seqs"),
        severity="warning",
        source=(thread("issue 55381"), thread("PR 55481")),
        check=with_node(_unpinned_on_slices),
    ),
)
