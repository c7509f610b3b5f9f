"""Rules of pipeline, data, context and expert parallelism, and of the GPUs they take."""

import math
from collections.abc import Iterator

from service.tuning.hardware.spec import Node
from service.tuning.models.spec import ModelSpec
from service.tuning.rules.base import (
    Remark,
    Rule,
    RuleContext,
    positive_int,
    thread,
    vllm,
    with_both,
    with_model,
    with_node,
)
from service.tuning.rules.domains import (
    dcp_obstacle,
)

_TENSOR = ("tensor_parallel_size",)


def _experts_of_a_dense_model(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if context.expert_parallel and not spec.is_moe:
        yield Remark(
            message="Expert parallelism is asked for, but the model has no experts.",
            suggestion="Leave enable_expert_parallel out.",
        )


def _too_few_gpus(context: RuleContext, node: Node) -> Iterator[Remark]:
    world = context.world_size
    if world > node.num_gpus:
        yield Remark(
            message=f"The parallel sizes multiply to {world} GPUs, but the hardware names"
            f" {node.nodes} x {node.gpus_per_node} of them.",
            suggestion=f"{_missing_hardware(node, world)} Else keep tensor x pipeline x data"
            f" parallelism within {node.num_gpus}.",
        )


def _missing_hardware(node: Node, world: int) -> str:
    """Return which field of the request to write when the hardware does have that many GPUs."""
    nodes = math.ceil(world / node.gpus_per_node)
    fields = f"/hardware/nodes to {nodes} (it is {node.nodes})"
    if node.gpus_per_node == 1:
        per_node = math.ceil(world / node.nodes)
        fields = f"/hardware/gpus_per_node to {per_node} (it is 1), or {fields}"
    return f"If there are more GPUs, set {fields}."


def _needs_a_launcher(context: RuleContext, node: Node) -> Iterator[Remark]:
    world = context.tensor_parallel_size * context.pipeline_parallel_size
    if world <= node.gpus_per_node or context.world_size > node.num_gpus:
        return
    is_arranged = context.given.nnodes is not None or (
        context.given.distributed_executor_backend in ("ray", "external_launcher")
    )
    if not is_arranged:
        yield Remark(
            setting="distributed_executor_backend",
            message=f"One replica spans {world} GPUs, more than the {node.gpus_per_node} of one"
            " node: vLLM refuses that unless it is told how the nodes are joined.",
            suggestion="Set distributed_executor_backend to ray, or nnodes, node_rank and"
            " master_addr on each node.",
        )


def _decode_context(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    size = positive_int(context.effective.decode_context_parallel_size) or 1
    if size == 1:
        return
    reason = dcp_obstacle(spec, context.tensor_parallel_size, decode_context=size)
    if reason is not None:
        yield Remark(
            message=f"decode_context_parallel_size={size} is refused: {reason}.",
            suggestion="Leave it out, or raise tensor_parallel_size beyond the KV heads.",
        )


def _both_context_parallel_sizes(context: RuleContext) -> Iterator[Remark]:
    decode = positive_int(context.effective.decode_context_parallel_size) or 1
    prefill = positive_int(context.effective.prefill_context_parallel_size) or 1
    allowed = {1, prefill, context.tensor_parallel_size * prefill}
    if prefill > 1 and decode not in allowed:
        listed = ", ".join(str(size) for size in sorted(allowed))
        yield Remark(
            message=f"With prefill_context_parallel_size={prefill}, decode context parallelism"
            f" may only be {listed}; it is {decode}.",
            suggestion="Choose one of these sizes.",
        )


def _pipeline(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    stages = context.pipeline_parallel_size
    if stages == 1:
        return
    if not spec.supports_pp:
        yield Remark(
            message=f"{spec.architecture} is not written for pipeline parallelism.",
            suggestion="Use tensor parallelism.",
        )
    elif stages > spec.num_layers:
        yield Remark(
            message=f"{stages} pipeline stages are more than the {spec.num_layers} layers.",
            suggestion=f"Use at most {spec.num_layers}.",
        )


def _needless_pipeline(context: RuleContext, spec: ModelSpec, node: Node) -> Iterator[Remark]:
    stages, plan = context.pipeline_parallel_size, context.plan
    if stages == 1 or plan is None or not spec.supports_pp or node.num_gpus == 1:
        return
    whole = plan.weights_bytes * stages * context.tensor_parallel_size
    if whole < plan.requested_bytes * 0.6:
        yield Remark(
            message=f"The whole model fits one GPU, yet it is cut into {stages} stages: a request"
            " then visits them one after the other and gains nothing.",
            suggestion=f"Use {stages} replicas (data_parallel_size={stages}) instead of stages.",
        )


def _all_to_all_without_experts(context: RuleContext) -> Iterator[Remark]:
    backend = context.given.all2all_backend
    is_default = backend in (None, "naive", "allgather_reducescatter")
    if not is_default and not context.expert_parallel:
        yield Remark(
            message=f"all2all_backend={str(backend)[:64]} has no effect without expert"
            " parallelism.",
            suggestion="Add enable_expert_parallel, or leave the backend out.",
        )


def _uneven_experts(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    if not context.expert_parallel or not spec.is_moe:
        return
    ranks = context.tensor_parallel_size * context.data_parallel_size
    experts = _physical_experts(context, spec)
    if experts % ranks == 0:
        return
    is_refused = context.given.enable_eplb is True or context.version.since("0.27.0")
    yield Remark(
        severity="error" if is_refused else "warning",
        message=f"{experts} experts cannot be spread evenly over {ranks} ranks"
        + (": refused." if is_refused else "; the load balancer would refuse that."),
        suggestion=f"Choose ranks that divide {experts}, or add redundant experts (eplb_config)"
        f" up to {experts + ranks - experts % ranks}.",
    )


def _physical_experts(context: RuleContext, spec: ModelSpec) -> int:
    routed = [getattr(group.feed_forward, "num_experts", 0) for group in spec.layers]
    balancer = context.given.eplb_config
    stated = balancer.get("num_redundant_experts") if isinstance(balancer, dict) else None
    redundant = positive_int(context.given.num_redundant_experts) or positive_int(stated) or 0
    return max(routed) + redundant


def _lock_step(context: RuleContext, spec: ModelSpec) -> Iterator[Remark]:
    replicas = context.data_parallel_size
    if replicas > 1 and spec.is_moe and not context.expert_parallel:
        yield Remark(
            message=f"The {replicas} data-parallel ranks of a mixture share each expert's width:"
            " they step together, and an idle rank computes dummy batches.",
            suggestion="Add enable_expert_parallel, which keeps experts whole.",
        )


def _idle_gpus(context: RuleContext, node: Node) -> Iterator[Remark]:
    world = context.world_size
    if world < node.num_gpus and node.gpu.vendor != "cpu":
        replicas = node.num_gpus // world
        yield Remark(
            message=f"{world} of {node.num_gpus} GPUs are used by this server.",
            suggestion=f"Run {replicas} replicas, or set data_parallel_size={replicas}."
            if replicas > 1
            else "Choose sizes that multiply to the number of GPUs.",
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR005",
        title="Expert parallelism needs experts",
        help="enable_expert_parallel on a dense model is refused by the model's configuration.",
        settings=("enable_expert_parallel",),
        severity="error",
        since="0.8.0",
        source=(vllm("config/model.py"),),
        check=with_model(_experts_of_a_dense_model),
    ),
    Rule(
        id="PAR006",
        title="The parallel sizes fit the GPUs",
        help="Tensor, pipeline and data parallelism multiply to the number of GPUs that are"
        " taken. More than there are is refused, or waits forever for a Ray placement group.",
        settings=_TENSOR,
        severity="error",
        source=(vllm("config/parallel.py"), thread("issue 5056", repository="gpustack/gpustack")),
        check=with_node(_too_few_gpus),
    ),
    Rule(
        id="PAR007",
        title="A replica larger than a node needs a launcher",
        help="One replica over several nodes runs under Ray, or with one process per node that"
        " knows the first node's address.",
        settings=("distributed_executor_backend",),
        severity="warning",
        source=(vllm("config/parallel.py"),),
        check=with_node(_needs_a_launcher),
    ),
    Rule(
        id="PAR012",
        title="Decode context parallelism shares copied KV heads",
        help="It divides tensor parallelism and, with grouped KV heads, at most the number of"
        " ranks that hold the same KV head; the query heads per KV head divide by it too.",
        settings=("decode_context_parallel_size",),
        severity="error",
        since="0.10.2",
        source=(vllm("config/model.py"),),
        check=with_model(_decode_context),
    ),
    Rule(
        id="PAR013",
        title="Decode and prefill context parallelism agree",
        help="With prefill context parallelism, decode context parallelism is off, equal to it,"
        " or spans all ranks.",
        settings=("decode_context_parallel_size",),
        severity="error",
        since="0.12.0",
        source=(vllm("config/parallel.py"),),
        check=_both_context_parallel_sizes,
    ),
    Rule(
        id="PAR014",
        title="Pipeline stages need a model that supports them",
        help="Only models written for it can be cut into stages; each stage has a layer at least.",
        settings=("pipeline_parallel_size",),
        severity="error",
        source=(vllm("config/model.py; distributed/utils.py: get_pp_indices"),),
        check=with_model(_pipeline),
    ),
    Rule(
        id="PAR015",
        title="Pipeline stages for a model that fits one GPU",
        help="Stages make a model fit; they do not serve more requests. Seven billion parameters"
        " over eight large GPUs run faster as eight replicas.",
        settings=("pipeline_parallel_size",),
        severity="warning",
        source=(thread("issue 11192"), thread("issue 7202")),
        check=with_both(_needless_pipeline),
    ),
    Rule(
        id="PAR016",
        title="An all-to-all backend works only with expert parallelism",
        help="all2all_backend chooses how tokens travel to experts on other ranks. Without"
        " enable_expert_parallel experts are cut instead, and the backend does nothing.",
        settings=("all2all_backend",),
        severity="warning",
        source=(thread("PR 186", repository="vllm-project/vime"),),
        check=_all_to_all_without_experts,
    ),
    Rule(
        id="PAR017",
        title="Experts spread evenly over the expert-parallel ranks",
        help="With the load balancer (enable_eplb) routed plus redundant experts must divide by"
        " tensor x data parallel ranks. A report of 0.27.1 shows it asked for without the"
        " balancer too; older releases gave the first ranks one more.",
        settings=("enable_expert_parallel",),
        severity="warning",
        since="0.8.0",
        source=(thread("issue 52435"),),
        check=with_model(_uneven_experts),
    ),
    Rule(
        id="PAR018",
        title="GPUs that this server leaves idle",
        help="A server uses tensor x pipeline x data parallel GPUs. The rest can run replicas.",
        settings=_TENSOR,
        severity="note",
        source=(vllm("config/parallel.py"),),
        check=with_node(_idle_gpus),
    ),
    Rule(
        id="PAR020",
        title="Data-parallel ranks of a mixture run in step",
        help="Ranks of a dense model are independent replicas. Those of a mixture exchange tokens"
        " in every layer, so the slowest sets the pace. Expert parallelism keeps the experts"
        " whole; separate servers are independent.",
        settings=("data_parallel_size",),
        severity="note",
        since="0.8.3",
        source=(vllm("config/parallel.py"), thread("PR 30739")),
        check=with_model(_lock_step),
    ),
)
