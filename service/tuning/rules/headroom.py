"""Rules on the memory beside vLLM's budget: what starts, and may still run out."""

from collections.abc import Iterator

from api_schemas.explanation import Source
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import GIB, MemoryPlan
from service.tuning.rules.base import Remark, Rule, RuleContext, thread, vllm, with_plan
from service.tuning.rules.capacity import gib

_LOGIT_BYTES = 4
_SAMPLER_COPIES = 3.6
"""Copies of the fp32 logits at the sampler's peak, from H100 logs of 0.17 to 0.19."""
_UNCOUNTED_BASE_GIB = 0.5
"""CUDA context and library handles that exist before vLLM takes its baseline."""
_HIGH_UTILIZATION = 0.95
_LONG_PROMPT_TOKENS = 32_768
_LONG_PROMPT_ROOM_GIB = 1.0


def _sampler_warm_up(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec, sequences = context.spec, context.effective.max_num_seqs
    if spec is None or not sequences or not plan.fits or _is_cpu(context.node):
        return
    logits = min(sequences, context.effective.max_num_batched_tokens or sequences)
    logits_bytes = logits * spec.vocab_size * _LOGIT_BYTES
    room = _room_outside_bytes(plan)
    if room >= _SAMPLER_COPIES * logits_bytes:
        return
    yield Remark(
        message=(
            f"The sampler's warm-up works on {logits} rows of {spec.vocab_size} logits,"
            f" {gib(logits_bytes)} GiB each copy, while about {gib(max(0.0, room))} GiB stay"
            " free beside the budget and the CUDA graphs: it may run out of memory."
        ),
        suggestion="Lower max_num_seqs or gpu_memory_utilization.",
    )


def _graphs_outside(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    uncharged = plan.cuda_graphs_bytes - plan.charged_graphs_bytes
    utilization = context.effective.gpu_memory_utilization or 0.0
    if not plan.fits or plan.cuda_graphs_bytes <= 0 or plan.charged_graphs_bytes > 0:
        return
    room = _room_outside_bytes(plan) - _UNCOUNTED_BASE_GIB * GIB
    if utilization < _HIGH_UTILIZATION and room > 0:
        return
    yield Remark(
        message=(
            f"The CUDA graphs (about {gib(uncharged)} GiB) come on top of the"
            f" {gib(plan.requested_bytes)} GiB budget; of {gib(plan.total_bytes)} GiB about"
            f" {gib(max(0.0, room))} GiB then stay free."
        ),
        suggestion="Keep gpu_memory_utilization at 0.92 or below, or capture fewer sizes.",
    )


def _consumer_blackwell(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    node = context.node
    if node is None or plan.cuda_graphs_bytes <= 0 or not plan.fits:
        return
    is_consumer = node.gpu.gpu_class == "consumer" and node.gpu.arch.startswith("Blackwell")
    if not is_consumer:
        return
    yield Remark(
        message=(
            "On consumer Blackwell parts graph capture has run out of memory at any utilization"
            f" ({gib(plan.cuda_graphs_bytes)} GiB of graphs are expected here)."
        ),
        suggestion="If capture fails, set enforce_eager, or capture fewer sizes.",
    )


def _first_long_prompt(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or not plan.fits or not spec.is_hybrid:
        return
    room = _room_outside_bytes(plan) - _UNCOUNTED_BASE_GIB * GIB
    is_tight = room < _LONG_PROMPT_ROOM_GIB * GIB
    if plan.max_model_len < _LONG_PROMPT_TOKENS or not is_tight or _is_cpu(context.node):
        return
    yield Remark(
        message=(
            f"About {gib(max(0.0, room))} GiB stay free beside the budget. vLLM profiles itself"
            " with short sequences; the first long prompt of a recurrent model allocates more."
        ),
        suggestion="Test with one prompt of full length before production.",
    )


def _graph_estimate(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or plan.charged_graphs_bytes <= 0 or not (spec.is_moe or spec.is_hybrid):
        return
    yield Remark(
        message=(
            "vLLM subtracts its own estimate of the CUDA graphs from the KV cache, here about"
            f" {gib(plan.charged_graphs_bytes)} GiB. For models like this one it has come out"
            " several times too high, which leaves less cache than predicted."
        ),
        suggestion=(
            "Compare estimated and actual graph memory in the start-up log; the environment"
            " variable VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 switches the estimate off."
        ),
    )


def _is_cpu(node: Node | None) -> bool:
    return node is not None and node.gpu.vendor == "cpu"


def _room_outside_bytes(plan: MemoryPlan) -> float:
    """Return what stays free beside the budget once the graphs outside it are captured."""
    uncharged = max(0.0, plan.cuda_graphs_bytes - plan.charged_graphs_bytes)
    return plan.total_bytes - plan.requested_bytes - uncharged


RULES: tuple[Rule, ...] = (
    Rule(
        id="CAP007",
        title="Room for the sampler's warm-up",
        help="Many sequences times a large vocabulary need gigabytes of logits after profiling.",
        settings=("max_num_seqs",),
        severity="warning",
        source=(
            Source(title="Memory model", where="benchmarks/memory_accuracy.py"),
            thread("pull/205", repository="llm-d-incubation/llm-d-planner"),
        ),
        check=with_plan(_sampler_warm_up),
    ),
    Rule(
        id="CAP008",
        title="CUDA graphs outside the budget",
        help="Up to 0.19, and with Model Runner V2 up to 0.28, graphs come on top of the budget.",
        settings=("gpu_memory_utilization",),
        severity="warning",
        source=(vllm("v1/worker/gpu_worker.py:determine_available_memory"),),
        check=with_plan(_graphs_outside),
    ),
    Rule(
        id="CAP009",
        title="Graph capture on consumer Blackwell",
        help="Capture has failed there for lack of memory whatever the utilization was.",
        settings=("enforce_eager",),
        severity="warning",
        source=(thread("models/Qwen/Qwen3.8-27B.yaml", repository="vllm-project/recipes"),),
        check=with_plan(_consumer_blackwell),
    ),
    Rule(
        id="CAP010",
        title="Room for the first long prompt",
        help="Profiling uses short sequences; recurrent models allocate more for long ones.",
        settings=("gpu_memory_utilization",),
        severity="warning",
        source=(thread("docs/CLIFFS.md", repository="noonghunna/club-3090"),),
        check=with_plan(_first_long_prompt),
    ),
    Rule(
        id="CAP013",
        title="vLLM's estimate of the CUDA graphs is uncertain here",
        help="From 0.20 the estimate is taken from the pool; mixtures and hybrids lose most by it.",
        settings=("gpu_memory_utilization",),
        severity="note",
        source=(thread("issues 45178, 50780 and 53013"),),
        since="0.20.0",
        check=with_plan(_graph_estimate),
    ),
)
