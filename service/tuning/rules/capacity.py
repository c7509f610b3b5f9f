"""Rules on memory: what does not fit, what only just fits, and what may still run out."""

from collections.abc import Iterator

from api_schemas.explanation import Source
from service.tuning.hardware.spec import Node
from service.tuning.memory.plan import GIB, MemoryPlan
from service.tuning.models.inventory import weights
from service.tuning.rules.base import Remark, Rule, RuleContext, thread, vllm, with_plan

_LOGIT_BYTES = 4
_SAMPLER_COPIES = 3.6
"""Copies of the fp32 logits at the sampler's peak, from H100 logs of 0.17 to 0.19."""
_UNCOUNTED_BASE_GIB = 0.5
"""CUDA context and library handles that exist before vLLM takes its baseline."""
_HIGH_UTILIZATION = 0.95
_FAR_FROM_INVENTORY = 2.0
"""Formats that differ between file and memory make less than this."""
_LONG_PROMPT_TOKENS = 32_768
_LONG_PROMPT_ROOM_GIB = 1.0
_BUDGET = vllm("v1/worker/gpu_worker.py:determine_available_memory")
_CHECK = vllm("v1/core/kv_cache_utils.py:check_enough_kv_cache_memory")
_MODEL = Source(title="Memory model", where="benchmarks/memory_accuracy.py")


def _weights(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "weights" not in plan.refusals:
        return
    yield Remark(
        message=(
            f"The weights take {_gib(plan.weights_bytes)} GiB on each GPU, but it has"
            f" {_gib(plan.total_bytes)} GiB in all: loading runs out of memory."
        ),
        suggestion=_more_gpus(context, plan),
        setting="tensor_parallel_size",
    )


def _no_memory(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "no_memory" not in plan.refusals:
        return
    yield Remark(
        message=(
            f"Nothing is left for the KV cache: {_gib(plan.requested_bytes)} GiB are requested,"
            f" weights take {_gib(plan.weights_bytes)}, activations"
            f" {_gib(plan.activation_bytes)} and overheads {_gib(_overhead_bytes(plan))} GiB,"
            f" which leaves {_gib(plan.available_bytes)} GiB."
        ),
        suggestion=_more_memory(context, plan),
    )


def _one_request(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "one_request" not in plan.refusals or plan.kv is None:
        return
    longest = plan.kv.largest_max_model_len
    missing = plan.kv.request_blocks(plan.max_model_len) - plan.kv.num_blocks
    yield Remark(
        message=(
            f"One request of max_model_len {plan.max_model_len} tokens needs"
            f" {_gib(plan.kv.request_blocks(plan.max_model_len) * plan.kv.block_bytes)} GiB of"
            f" KV cache, but {_gib(plan.kv.kv_cache_bytes)} GiB are left: the largest"
            f" max_model_len that fits is {longest}."
        ),
        suggestion=_shorter_or_larger(context, plan, missing * plan.kv.block_bytes),
        setting="max_model_len",
    )


def _borderline(_: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if not plan.borderline or plan.kv is None:
        return
    verdict = "fits" if plan.fits else "does not fit"
    yield Remark(
        message=(
            f"By the figures it {verdict}, but only just: {plan.kv.max_concurrency:.2f} requests"
            f" of {plan.max_model_len} tokens, with an uncertainty of"
            f" {_gib(plan.band_bytes)} GiB on {_gib(plan.available_bytes)} GiB of KV cache."
        ),
        suggestion="Start it once to be sure, or lower max_model_len by a tenth.",
        setting="max_model_len",
    )


def _state_blocks(_: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "state_blocks" not in plan.refusals or plan.kv is None:
        return
    yield Remark(
        message=(
            f"The model keeps a recurrent state per sequence, and the cache holds"
            f" {plan.kv.num_blocks} blocks: fewer than max_num_seqs."
        ),
        suggestion=f"Set max_num_seqs to {plan.kv.num_blocks} or less.",
    )


def _free_memory(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "free_memory" not in plan.refusals or context.node is None:
        return
    used = context.node.used_memory_gib
    free_share = 1 - used / context.node.total_memory_gib
    yield Remark(
        message=(
            f"{_gib(plan.requested_bytes)} GiB are requested, but other processes hold"
            f" {used:g} GiB of the GPU's {_gib(plan.total_bytes)} GiB: vLLM refuses to start."
        ),
        suggestion=(
            "Free the GPU, or set gpu_memory_utilization to"
            f" {max(0.0, int(free_share * 100 - 1) / 100):g}."
        ),
    )


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
            f" {_gib(logits_bytes)} GiB each copy, while about {_gib(max(0.0, room))} GiB stay"
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
            f"The CUDA graphs (about {_gib(uncharged)} GiB) come on top of the"
            f" {_gib(plan.requested_bytes)} GiB budget; of {_gib(plan.total_bytes)} GiB about"
            f" {_gib(max(0.0, room))} GiB then stay free."
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
            f" ({_gib(plan.cuda_graphs_bytes)} GiB of graphs are expected here)."
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
            f"About {_gib(max(0.0, room))} GiB stay free beside the budget. vLLM profiles itself"
            " with short sequences; the first long prompt of a recurrent model allocates more."
        ),
        suggestion="Test with one prompt of full length before production.",
    )


def _rough_layout(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or spec.layout_confidence == "high":
        return
    yield Remark(
        message=(
            "The checkpoint's layout is not fully stated by its config, so the weights"
            f" ({_gib(plan.weights_bytes)} GiB) may be off by 5 %."
        ),
        suggestion="State model.weights_bytes, the total size of the checkpoint's files.",
    )


def _graph_estimate(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or plan.charged_graphs_bytes <= 0 or not (spec.is_moe or spec.is_hybrid):
        return
    yield Remark(
        message=(
            "vLLM subtracts its own estimate of the CUDA graphs from the KV cache, here about"
            f" {_gib(plan.charged_graphs_bytes)} GiB. For models like this one it has come out"
            " several times too high, which leaves less cache than predicted."
        ),
        suggestion=(
            "Compare estimated and actual graph memory in the start-up log; the environment"
            " variable VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 switches the estimate off."
        ),
    )


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f}"


def _is_cpu(node: Node | None) -> bool:
    return node is not None and node.gpu.vendor == "cpu"


def _overhead_bytes(plan: MemoryPlan) -> float:
    return plan.non_torch_bytes + plan.charged_graphs_bytes + plan.slack_bytes


def _room_outside_bytes(plan: MemoryPlan) -> float:
    """Return what stays free beside the budget once the graphs outside it are captured."""
    uncharged = max(0.0, plan.cuda_graphs_bytes - plan.charged_graphs_bytes)
    return plan.total_bytes - plan.requested_bytes - uncharged


def _more_gpus(context: RuleContext, plan: MemoryPlan) -> str:
    node, ranks = context.node, context.tensor_parallel_size * context.pipeline_parallel_size
    share = plan.requested_bytes or plan.total_bytes
    needed = ranks * plan.weights_bytes / max(1.0, share)
    if node is not None and node.num_gpus > ranks:
        return f"Split the model over more of the {node.num_gpus} GPUs (now {ranks})."
    return f"Take a smaller or quantised checkpoint, or more than {needed:.1f} such GPUs."


def _more_memory(context: RuleContext, plan: MemoryPlan) -> str:
    missing = -plan.available_bytes
    steps = [_more_gpus(context, plan)]
    if plan.total_bytes - plan.requested_bytes > missing:
        raised = (plan.requested_bytes + missing) / plan.total_bytes
        steps.insert(0, f"Raise gpu_memory_utilization above {raised:.2f}.")
    return " ".join(steps)


def _shorter_or_larger(context: RuleContext, plan: MemoryPlan, missing_bytes: float) -> str:
    steps = []
    if plan.kv is not None and plan.kv.largest_max_model_len > 0:
        steps.append(f"Set max_model_len to {plan.kv.largest_max_model_len} or less.")
    raised = (plan.requested_bytes + missing_bytes) / plan.total_bytes
    if context.effective.kv_cache_memory_bytes is None and raised < _HIGH_UTILIZATION:
        steps.append(f"Or raise gpu_memory_utilization to {raised + 0.005:.2f}.")
    steps.append(_more_gpus(context, plan))
    return " ".join(steps)


def _stated_size(context: RuleContext) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or spec.weights_bytes is None:
        return
    stored = sum(tensor.bytes_ for tensor in weights(spec))
    ratio = spec.weights_bytes / max(1.0, stored)
    if 1 / _FAR_FROM_INVENTORY <= ratio <= _FAR_FROM_INVENTORY:
        return
    yield Remark(
        message=(
            f"weights_bytes says {_gib(spec.weights_bytes)} GiB, but the config's layers take"
            f" {_gib(stored)} GiB. The latter is planned with; one of them is wrong."
        ),
        suggestion="Give the total of the checkpoint's weight files, or the config that belongs"
        " to them.",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="CAP001",
        title="The weights must load",
        help="A GPU that cannot hold its share of the weights fails while loading them.",
        settings=("tensor_parallel_size",),
        severity="error",
        source=(_BUDGET,),
        check=with_plan(_weights),
    ),
    Rule(
        id="CAP002",
        title="Memory must be left for the KV cache",
        help="Weights, activations and overheads must stay below the requested memory.",
        settings=("gpu_memory_utilization",),
        severity="error",
        source=(_BUDGET,),
        check=with_plan(_no_memory),
    ),
    Rule(
        id="CAP003",
        title="One request of full length must fit",
        help="vLLM starts only if the KV cache holds one request of max_model_len tokens.",
        settings=("max_model_len",),
        severity="error",
        source=(_CHECK,),
        check=with_plan(_one_request),
    ),
    Rule(
        id="CAP004",
        title="Fits only just, or only just not",
        help="So near the limit the prediction's uncertainty decides.",
        settings=("max_model_len",),
        severity="warning",
        source=(_MODEL,),
        check=with_plan(_borderline),
    ),
    Rule(
        id="CAP005",
        title="One recurrent state block per sequence",
        help="Hybrid models need as many cache blocks as max_num_seqs before graphs are captured.",
        settings=("max_num_seqs",),
        severity="error",
        source=(vllm("v1/worker: check of state blocks before graph capture"),),
        since="0.20.0",
        check=with_plan(_state_blocks),
    ),
    Rule(
        id="CAP006",
        title="The requested memory must be free at the start",
        help="gpu_memory_utilization is a share of all memory, not of what others leave.",
        settings=("gpu_memory_utilization",),
        severity="error",
        source=(vllm("v1/worker/utils.py:request_memory"),),
        since="0.9.1",
        check=with_plan(_free_memory),
    ),
    Rule(
        id="CAP007",
        title="Room for the sampler's warm-up",
        help="Many sequences times a large vocabulary need gigabytes of logits after profiling.",
        settings=("max_num_seqs",),
        severity="warning",
        source=(_MODEL, thread("pull/205", repository="llm-d-incubation/llm-d-planner")),
        check=with_plan(_sampler_warm_up),
    ),
    Rule(
        id="CAP008",
        title="CUDA graphs outside the budget",
        help="Up to 0.19, and with Model Runner V2 up to 0.28, graphs come on top of the budget.",
        settings=("gpu_memory_utilization",),
        severity="warning",
        source=(_BUDGET,),
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
        id="CAP011",
        title="The checkpoint's layout is not fully known",
        help="Mixed or dynamic quantisation does not state which tensors stay in 16 bit.",
        settings=("quantization",),
        severity="note",
        source=(_MODEL,),
        check=with_plan(_rough_layout),
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
    Rule(
        id="CAP014",
        title="The stated size is far from the layers' size",
        help="The bytes of the checkpoint's files and the layers of its config should agree.",
        settings=(),
        severity="warning",
        source=(_MODEL,),
        check=_stated_size,
    ),
)
