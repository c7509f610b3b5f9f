"""Rules on what fits: what is too large, what only just fits, and how sure the sizes are."""

from collections.abc import Iterator

from api_schemas.explanation import Source
from service.tuning.memory.plan import GIB, MemoryPlan
from service.tuning.models.inventory import weights
from service.tuning.rules.base import Remark, Rule, RuleContext, vllm, with_plan
from service.tuning.rules.domains import legal_tensor_parallel_sizes

_HIGH_UTILIZATION = 0.95
_WIDEST_NODE = 16
_FAR_FROM_INVENTORY = 2.0
"""Formats that differ between file and memory make less than this."""
_BUDGET = vllm("v1/worker/gpu_worker.py:determine_available_memory")
_CHECK = vllm("v1/core/kv_cache_utils.py:check_enough_kv_cache_memory")
_MODEL = Source(title="Memory model", where="benchmarks/memory_accuracy.py")


def _weights(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "weights" not in plan.refusals:
        return
    kind = "GPU" if context.node is None else context.node.gpu.kind
    yield Remark(
        message=(
            f"The weights take {gib(plan.weights_bytes)} GiB on each {kind}, but it has"
            f" {gib(plan.total_bytes)} GiB in all: loading runs out of memory."
        ),
        suggestion=_more_gpus(context, plan),
        setting="tensor_parallel_size",
    )


def _no_memory(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    if "no_memory" not in plan.refusals:
        return
    yield Remark(
        message=(
            f"Nothing is left for the KV cache: {gib(plan.requested_bytes)} GiB are requested,"
            f" weights take {gib(plan.weights_bytes)}, activations"
            f" {gib(plan.activation_bytes)} and overheads {gib(_overhead_bytes(plan))} GiB,"
            f" which leaves {gib(plan.available_bytes)} GiB."
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
            f" {gib(plan.kv.request_blocks(plan.max_model_len) * plan.kv.block_bytes)} GiB of"
            f" KV cache, but {gib(plan.kv.kv_cache_bytes)} GiB are left: the largest"
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
            f" {gib(plan.band_bytes)} GiB on {gib(plan.available_bytes)} GiB of KV cache."
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
            f"{gib(plan.requested_bytes)} GiB are requested, but other processes hold"
            f" {used:g} GiB of the GPU's {gib(plan.total_bytes)} GiB: vLLM refuses to start."
        ),
        suggestion=(
            "Free the GPU, or set gpu_memory_utilization to"
            f" {max(0.0, int(free_share * 100 - 1) / 100):g}."
        ),
    )


def _rough_layout(context: RuleContext, plan: MemoryPlan) -> Iterator[Remark]:
    spec = context.spec
    if spec is None or spec.layout_confidence == "high":
        return
    yield Remark(
        message=(
            "The checkpoint's layout is not fully stated by its config, so the weights"
            f" ({gib(plan.weights_bytes)} GiB) may be off by 5 %."
        ),
        suggestion="State model.weights_bytes, the total size of the checkpoint's files.",
    )


def gib(size_bytes: float) -> str:
    """Return a size in GiB with two digits, as messages show it."""
    return f"{size_bytes / GIB:.2f}"


def _overhead_bytes(plan: MemoryPlan) -> float:
    return plan.non_torch_bytes + plan.charged_graphs_bytes + plan.slack_bytes


def _more_gpus(context: RuleContext, plan: MemoryPlan) -> str:
    node, stages = context.node, context.pipeline_parallel_size
    now = context.tensor_parallel_size
    share = plan.requested_bytes or plan.total_bytes
    wider = _wider(context, above=max(now, now * plan.weights_bytes / max(1.0, share)))
    if node is not None and node.num_gpus > now * stages:
        at = "" if wider is None else f", at least with tensor_parallel_size {wider}"
        return f"Split the model over more of the {node.num_gpus} GPUs (now {now * stages}){at}."
    smaller = "Take a smaller or quantised checkpoint"
    if wider is None:
        return f"{smaller}, or larger GPUs."
    return (
        f"{smaller}, larger GPUs, or at least {wider * stages} such GPUs with"
        f" tensor_parallel_size {wider}."
    )


def _wider(context: RuleContext, *, above: float) -> int | None:
    """Return the next tensor parallelism that divides the model, None without one on a node."""
    if context.spec is None:
        return None
    sizes = legal_tensor_parallel_sizes(
        context.spec,
        num_gpus=_WIDEST_NODE,
        version=context.version,
        enable_expert_parallel=context.effective.enable_expert_parallel is True,
    )
    return next((size for size in sizes if size > above), None)


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
            f"weights_bytes says {gib(spec.weights_bytes)} GiB, but the config's layers take"
            f" {gib(stored)} GiB. The latter is planned with; one of them is wrong."
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
        id="CAP011",
        title="The checkpoint's layout is not fully known",
        help="Mixed or dynamic quantisation does not state which tensors stay in 16 bit.",
        settings=("quantization",),
        severity="note",
        source=(_MODEL,),
        check=with_plan(_rough_layout),
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
