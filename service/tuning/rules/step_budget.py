"""Rules of the tokens in a step and of chunked prefill."""

from collections.abc import Iterator

from api_schemas.explanation import Source
from service.tuning.hardware.spec import Node
from service.tuning.lengths import max_tokens
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    guide,
    positive_int,
    thread,
    vllm,
    with_node,
)
from service.tuning.simulation.effort import is_too_fine

_BUDGET = ("max_num_batched_tokens",)
_SEQS = ("max_num_seqs",)
_CHUNKS = ("enable_chunked_prefill",)
_LARGE_BUDGET = 32_768
_SMALL_BUDGET = 1024
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


def _unpinned_on_slices(context: RuleContext, node: Node) -> Iterator[Remark]:
    if not node.gpu.is_slice:
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


def _too_fine_to_simulate(context: RuleContext) -> Iterator[Remark]:
    budget = positive_int(context.effective.max_num_batched_tokens)
    threshold = positive_int(context.effective.long_prefill_token_threshold) or 0
    if context.workload is None or budget is None:
        return
    if is_too_fine(context.workload, token_budget=budget, longest_chunk=threshold):
        yield Remark(
            message=f"Prompts are read {min(budget, threshold or budget)} tokens at a time: that"
            " many steps are not simulated. Latency comes from the closed form, with wider bands.",
            suggestion="Give a step at least 1024 tokens; the guides take 2048 and more.",
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
        id="SCH019",
        title="Batch limits are set by hand on MIG slices",
        help="The defaults depend on the memory that the driver reports, which may be hidden"
        " inside a slice.",
        settings=("max_num_batched_tokens", "max_num_seqs"),
        severity="warning",
        source=(thread("issue 55381"), thread("PR 55481")),
        check=with_node(_unpinned_on_slices),
    ),
    Rule(
        id="SCH020",
        title="Steps too small to be simulated",
        help="The prediction's step-by-step run is bounded; beyond that the closed form stands in.",
        settings=("max_num_batched_tokens", "long_prefill_token_threshold"),
        severity="note",
        source=(Source(title="Performance model", where="service/tuning/simulation/effort.py"),),
        check=_too_fine_to_simulate,
    ),
)
