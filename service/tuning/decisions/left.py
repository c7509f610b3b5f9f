"""Why well-known settings are not touched."""

from api_schemas.explanation import Decision
from service.tuning.decisions.case import Case, decision
from service.tuning.decisions.sources import MEMORY_MODEL, thread, vllm
from service.tuning.memory.plan import GIB


def eager(case: Case) -> Decision:
    """Return why graphs stay on, or why they had to go."""
    value = case.config.enforce_eager
    if case.is_pinned("enforce_eager"):
        reason = "Fixed by the request."
    elif value:
        reason = (
            "Nothing else fits: without compiled graphs "
            f"{case.sized.plan.requested_bytes / GIB:.1f} GiB are just enough. Allowed by the "
            "request."
        )
    else:
        reason = (
            "Left off: CUDA graphs make each decoding step several times faster on small batches. "
            "The claim that eager mode shortens the time to the first token does not hold in "
            "general; what it surely shortens is the start."
        )
    return decision(
        "enforce_eager",
        value,
        rule="CHO030",
        reason=reason,
        inputs={"graphs_gib": case.sized.plan.cuda_graphs_bytes / GIB},
        source=(vllm("config/vllm.py"), thread("issue 45709")),
        if_higher="On: saves the graphs' memory and some of the start, decoding gets much slower.",
        if_lower="Off: graphs are captured at start.",
        confidence="high",
    )


def quantization(case: Case) -> Decision:
    """Return why the weights' format is left to the checkpoint."""
    found = case.problem.spec.quantization
    if case.is_pinned("quantization"):
        reason = "Fixed by the request."
    elif found is not None:
        reason = (
            f"Left unset: vLLM reads {found.method} from the checkpoint and picks the fastest "
            "kernel; naming the method can pick a slower one or clash with the files."
        )
    else:
        reason = (
            "Left unset: the checkpoint is not quantised, and quantising at load was not asked for."
        )
    return decision(
        "quantization",
        case.config.quantization,
        rule="CHO031",
        reason=reason,
        source=(vllm("config/model.py: _verify_quantization"),),
        if_higher="More bits: a larger checkpoint, less KV cache, slower decoding.",
        if_lower="Fewer bits: a quantised checkpoint, more KV cache, quality to check.",
        confidence="high",
    )


def swap(case: Case) -> Decision:
    """Return why swap space is not set."""
    version = case.problem.version
    gone = version.since("0.18.0")
    without_effect = version.since("0.8.0")
    if case.is_pinned("swap_space"):
        reason = "Fixed by the request."
    elif gone:
        reason = (
            "The setting is gone since 0.18.0 and had no effect since 0.8.0: preempted requests "
            "are computed again, not swapped. kv_offloading_size is what keeps blocks in host "
            "memory today."
        )
    elif without_effect:
        reason = "Left unset: it has no effect since 0.8.0; preempted requests are computed again."
    else:
        reason = "Left at vLLM's own 4 GiB; a plan without preemptions never uses it."
    return decision(
        "swap_space",
        case.config.swap_space,
        rule="CHO032",
        reason=reason,
        source=(vllm("engine/arg_utils.py, 0.17 against 0.18"),),
        if_higher="No effect on a plan without preemptions.",
        if_lower="No effect on a plan without preemptions.",
        confidence="high",
    )


def offload(case: Case) -> Decision | None:
    """Return why nothing is moved to host memory, when the caller had not asked for it."""
    for setting in ("cpu_offload_gb", "kv_offloading_size"):
        if case.is_pinned(setting):
            return None
    return decision(
        "cpu_offload_gb",
        None,
        rule="CHO033",
        reason="Left unset: the weights fit, and weights in host memory are read over PCIe at "
        "every step, which is many times slower.",
        inputs={"weights_gib_per_gpu": case.sized.plan.weights_bytes / GIB},
        source=(MEMORY_MODEL, thread("issue 57771")),
        if_higher="Each GiB frees that much for the KV cache and is read over PCIe every step.",
        if_lower="Nothing is offloaded.",
        confidence="high",
    )


def speculation(case: Case) -> Decision:
    """Return why tokens are drafted ahead or not."""
    value = case.config.speculative_config
    if case.is_pinned("speculative_config"):
        reason = "Fixed by the request."
    elif value is not None:
        reason = "The request names a drafter."
    else:
        reason = (
            "Left unset: no drafter was named. It shortens answers at low load; at high load the "
            "rejected drafts cost throughput."
        )
    return decision(
        "speculative_config",
        value,
        rule="CHO034",
        reason=reason,
        source=(vllm("config/speculative.py"),),
        if_higher="More drafted tokens: faster when they are accepted, wasted work when not.",
        if_lower="Fewer drafted tokens: less gain, less waste.",
        confidence="medium",
    )


def async_scheduling(case: Case) -> Decision:
    """Return why the next step is planned ahead by itself."""
    since = "0.14.0"
    own = (
        f"Left to vLLM, which has it on since {since} wherever it works."
        if case.problem.version.since(since)
        else "Left to vLLM: this release has it off, and it is young there."
    )
    return decision(
        "async_scheduling",
        case.config.async_scheduling,
        rule="CHO035",
        reason="Fixed by the request." if case.is_pinned("async_scheduling") else own,
        source=(vllm("config/scheduler.py and config/vllm.py"),),
        if_higher="On: the CPU's share of a step is hidden behind the GPU's.",
        if_lower="Off: each step waits for the CPU to plan it.",
        confidence="high",
    )
