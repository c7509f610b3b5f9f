"""Why the model is spread over the GPUs as it is."""

from api_schemas.explanation import Decision
from service.tuning.decisions.case import Case, decision
from service.tuning.decisions.sources import GUIDE_TENSOR, MEMORY_MODEL, PERFORMANCE_MODEL, vllm
from service.tuning.memory.plan import GIB
from service.tuning.search.figures import figure
from service.tuning.search.ranking import throughput_tokens_per_s
from service.tuning.search.trial import Trial

_PARALLEL = vllm("config/parallel.py and config/model.py: verify_with_parallel_config")


def tensor_parallel(case: Case) -> Decision:
    """Return why each layer is shared by this many GPUs."""
    topology = case.sized.topology
    size = topology.tensor_parallel_size
    return decision(
        "tensor_parallel_size",
        size,
        rule="CHO001",
        reason=_tensor_reason(case),
        formula="best of the legal sizes that fit, by objective, copies filling the GPUs",
        inputs={
            "gpus": case.problem.node.num_gpus,
            "copies": case.pick.copies,
            "weights_gib_per_gpu": case.sized.plan.weights_bytes / GIB,
            "interconnect": case.problem.node.interconnect,
            "compared": [_summary(trial) for trial in case.found.trials[:8]],
            "too_large": [f"{m.topology.label}: {m.detail}" for m in case.found.misfits[:8]],
        },
        source=(GUIDE_TENSOR, PERFORMANCE_MODEL, _PARALLEL),
        if_higher=(
            "Each answer comes faster and each GPU keeps more room for the KV cache, but fewer "
            "copies fit, and every layer waits for an exchange between more GPUs."
        ),
        if_lower=(
            "More copies fit and no time goes into exchanges, but each GPU holds more weights, "
            "less KV cache, and a single answer takes longer."
        ),
        confidence="high" if len(case.found.trials) == 1 else "medium",
    )


def _tensor_reason(case: Case) -> str:
    pick, problem = case.pick, case.problem
    size = pick.sized.topology.tensor_parallel_size
    if case.is_pinned("tensor_parallel_size"):
        return f"Fixed by the request at {size}."
    gib = pick.sized.plan.weights_bytes / GIB
    kind = problem.node.gpu.kind
    if problem.node.num_gpus == 1:
        return f"There is one {kind}; the weights take {gib:.1f} GiB of its memory."
    each = f"{size} {kind}{'s' if size > 1 else ''}"
    fits = f"With {each} per layer the weights take {gib:.1f} GiB each"
    rivals = [t for t in case.found.trials if t.sized.topology != pick.sized.topology]
    if not rivals:
        return f"{fits}; no other legal size fits."
    own, rival = _pair(case, rivals)
    return f"{fits}. {_compared(own, rival, problem.objective)}{_copies(own, rivals)}"


def _pair(case: Case, rivals: list[Trial]) -> tuple[Trial, Trial]:
    """Return the pick and its best rival by one method: simulated both, else closed form both."""
    topology = case.sized.topology
    simulated = case.found.finalists
    own = next((t for t in simulated if t.sized.topology == topology), None)
    rival = next((t for t in simulated if t.sized.topology != topology), None)
    if own is not None and rival is not None:
        return own, rival
    return case.found.reference or case.pick, rivals[0]


def _compared(pick: Trial, rival: Trial, objective: str) -> str:
    return (
        f"For the objective {objective} it ranks before {rival.sized.topology.label} x "
        f"{rival.copies}: {_figures(pick)} against {_figures(rival)}."
    )


def _figures(trial: Trial) -> str:
    rate = figure(throughput_tokens_per_s(trial))
    gpus = f"{trial.gpus} GPU{'s' if trial.gpus > 1 else ''}"
    time = figure(trial.performance.e2el_ms.mean)
    return f"up to {rate} output tokens/s and {time} ms per answer on {gpus}"


def _copies(pick: Trial, rivals: list[Trial]) -> str:
    """Return what replicas have over one wide copy, when that is the case."""
    wide = [t for t in rivals if t.sized.topology.gpus > pick.sized.topology.gpus]
    if pick.copies == 1 or not wide:
        return ""
    ratio = throughput_tokens_per_s(pick) / max(throughput_tokens_per_s(wide[-1]), 1e-9)
    return (
        f" The model fits fewer GPUs, so {pick.copies} copies behind a balancer carry "
        f"{figure(ratio)} times what one copy over {wide[-1].sized.topology.gpus} GPUs does: "
        "no layer waits for an exchange."
    )


def _summary(trial: Trial) -> str:
    verdict = "holds the limits" if trial.meets else "misses a limit"
    cache = " fp8 cache" if trial.sized.kv_cache_dtype else ""
    return f"{trial.sized.topology.label} x {trial.copies}{cache}: {_figures(trial)}, {verdict}"


def pipeline_parallel(case: Case) -> Decision | None:
    """Return why the layers are cut into stages, when they are."""
    topology = case.sized.topology
    if topology.pipeline_parallel_size == 1 and not case.is_pinned("pipeline_parallel_size"):
        return None
    node = case.problem.node
    if case.is_pinned("pipeline_parallel_size"):
        reason = "Fixed by the request."
    elif topology.gpus > node.gpus_per_node:
        reason = (
            "One node cannot hold the model, and only a hidden state has to cross from stage to "
            "stage, which the network between nodes can carry."
        )
    else:
        reason = (
            f"The GPUs are linked by {node.interconnect}: stages pass one hidden state on, where "
            "tensor parallelism would exchange twice per layer, and they reach GPU counts that "
            "the model's heads do not divide."
        )
    return decision(
        "pipeline_parallel_size",
        topology.pipeline_parallel_size,
        rule="CHO002",
        reason=reason,
        inputs={"nodes": node.nodes, "gpus_per_node": node.gpus_per_node},
        source=(PERFORMANCE_MODEL, _PARALLEL),
        if_higher="Less memory per GPU, but a single answer passes more stages one after another.",
        if_lower="Fewer stages to pass, but more weights on each GPU.",
        confidence="low",
    )


def data_parallel(case: Case) -> Decision | None:
    """Return why ranks of one server each take requests of their own, when they do."""
    topology = case.sized.topology
    if topology.data_parallel_size == 1 and not case.is_pinned("data_parallel_size"):
        return None
    reason = (
        "Fixed by the request."
        if case.is_pinned("data_parallel_size")
        else (
            "Tensor parallelism would copy the latent KV cache to every rank; as data-parallel "
            f"ranks the {topology.data_parallel_size} GPUs keep different requests each."
        )
    )
    return decision(
        "data_parallel_size",
        topology.data_parallel_size,
        rule="CHO003",
        reason=reason,
        inputs={"kv_cache_tokens_per_rank": case.sized.kv.tokens},
        source=(MEMORY_MODEL, vllm("config/parallel.py")),
        if_higher="More KV cache in all, but the attention weights are copied more often.",
        if_lower="A single answer gets more of the GPUs, but the KV cache holds fewer requests.",
        confidence="low",
    )


def expert_parallel(case: Case) -> Decision | None:
    """Return why experts stay whole on a rank, when they do or when it is an open question."""
    topology = case.sized.topology
    if not case.problem.spec.is_moe:
        return None
    if topology.enable_expert_parallel or case.is_pinned("enable_expert_parallel"):
        value, reason = topology.enable_expert_parallel, _expert_reason(case)
    else:
        value = None
        reason = (
            "Each expert is cut over the tensor ranks, so all ranks do equal work; whole experts "
            "per rank pay when the load is large and spread evenly, which must be measured."
        )
    return decision(
        "enable_expert_parallel",
        value,
        rule="CHO004",
        reason=reason,
        source=(vllm("layers/fused_moe/config.py"),),
        if_higher="On: whole experts per rank, fewer bytes per exchange, uneven work.",
        if_lower="Off: every rank takes part in every expert, even work.",
        confidence="low",
    )


def _expert_reason(case: Case) -> str:
    if case.is_pinned("enable_expert_parallel"):
        return "Fixed by the request."
    if case.sized.topology.data_parallel_size > 1:
        return "Data-parallel ranks share the experts, so that each expert is held once."
    return "The experts' width does not divide by the ranks; whole experts per rank do not need it."
