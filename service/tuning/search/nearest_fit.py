"""The nearest change that makes a model fit which does not."""

from collections.abc import Callable, Iterator

import msgspec

from api_schemas.hardware import Hardware
from api_schemas.recommendation import Binding, Constraints, Nearest
from service.tuning.hardware.catalogue import all_gpus, resolve_hardware
from service.tuning.hardware.spec import Gpu, Node
from service.tuning.models.spec import Quantization, WeightFormat
from service.tuning.search.emission import emitted
from service.tuning.search.finder import Found, size_all
from service.tuning.search.misfit import Misfit
from service.tuning.search.problem import Problem
from service.tuning.search.sizing import Sized, plan_config
from service.tuning.search.utilization_rule import choose_utilization

_GPU_COUNTS = (2, 4, 8, 16)
_NODE_SIZES = (4, 8)
_WIDEST_NODE = 8
_LAYOUT = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
)
_SMALLER = (
    ("8-bit", WeightFormat(scheme="fp8", bits=8, activation_bits=8)),
    ("4-bit", WeightFormat(scheme="int4", bits=4, group_size=128)),
)


def memory_binding(found: Found) -> tuple[Binding, Misfit]:
    """Return what keeps every layout from fitting, and the layout that lacks least."""
    closest = min(found.misfits, key=lambda m: (m.missing_gib, m.topology))
    return Binding(constraint=closest.obstacle, detail=closest.detail), closest


def nearest_that_fits(problem: Problem, hardware: Hardware, closest: Misfit) -> Nearest | None:
    """Return the first change that makes the model fit, from the cheapest kind to the dearest.

    A shorter request, an 8-bit cache, more GPUs of the kind, a quantised checkpoint, a larger
    GPU; None when none of them helps.
    """
    ways: tuple[Callable[[], Nearest | None], ...] = (
        lambda: _shorter(problem, closest),
        lambda: _with_fp8_cache(problem),
        lambda: _with_more_gpus(problem, hardware),
        lambda: _with_larger_gpu(problem, hardware),
        lambda: without_pinned_layout(problem),
        lambda: _shorter(problem, closest, at_least_tokens=1),
    )
    found = next((found for way in ways if (found := way()) is not None), None)
    smaller = _with_smaller_weights(problem)
    if found is None:
        return smaller
    if smaller is None:
        return found
    return msgspec.structs.replace(found, detail=f"{found.detail} Or: {smaller.change}.")


def without_pinned_layout(problem: Problem) -> Nearest | None:
    """Return the layout that fits when the pinned parallel sizes are let go."""
    free = _unpinned_layout(problem)
    sized = _first_fit(free) if free != problem else None
    if sized is None:
        return None
    return Nearest(
        change=f"{sized.topology.label} instead of the pinned or limited layout",
        config=emitted(free, sized.config, sized.effective),
        hardware=None,
        slo=None,
        detail="vLLM accepts this layout, and the model fits with it.",
    )


def _shorter(
    problem: Problem, closest: Misfit, *, at_least_tokens: float | None = None
) -> Nearest | None:
    kv = closest.plan.kv
    demand = problem.demand
    least = at_least_tokens or demand.prompt_mean_tokens + demand.output_mean_tokens
    if closest.obstacle != "length" or kv is None or kv.largest_max_model_len < least:
        return None
    longest = max(16, kv.largest_max_model_len * 9 // 10 // 16 * 16)
    config = msgspec.structs.replace(closest.config, max_model_len=longest)
    effective, plan = plan_config(problem, config)
    if not plan.fits:
        return None
    return Nearest(
        change=f"accept requests of at most {longest} tokens",
        config=emitted(problem, config, effective),
        hardware=None,
        slo=None,
        detail=(
            f"{longest} tokens fit beside the weights; longer requests of this load would be "
            "refused."
        ),
    )


def _with_fp8_cache(problem: Problem) -> Nearest | None:
    if problem.constraints.allow_fp8_kv_cache:
        return None
    allowed = msgspec.structs.replace(problem.constraints, allow_fp8_kv_cache=True)
    sized = _first_fit(_posed(problem, constraints=allowed))
    if sized is None:
        return None
    return Nearest(
        change="allow an 8-bit KV cache",
        config=emitted(problem, sized.config, sized.effective),
        hardware=None,
        slo=None,
        detail="An 8-bit cache holds twice the tokens, which is enough here.",
    )


def _with_more_gpus(problem: Problem, hardware: Hardware) -> Nearest | None:
    free = _unpinned_layout(problem)
    for count in _GPU_COUNTS:
        if count <= problem.node.num_gpus:
            continue
        node, asked = _grown(hardware, count)
        sized = _first_fit(_posed(free, node=node))
        if sized is not None:
            return Nearest(
                change=f"{count} x {node.gpu.name} instead of {problem.node.num_gpus}",
                config=emitted(free, sized.config, sized.effective),
                hardware=asked,
                slo=None,
                detail=f"As {sized.topology.label} the model and the cache fit.",
            )
    return None


def _grown(hardware: Hardware, count: int) -> tuple[Node, Hardware]:
    """Return as many GPUs of the kind, in nodes of at most eight."""
    per_node = min(count, _WIDEST_NODE)
    asked = msgspec.structs.replace(hardware, gpus_per_node=per_node, nodes=count // per_node)
    return resolve_hardware(asked)[0], asked


def _with_larger_gpu(problem: Problem, hardware: Hardware) -> Nearest | None:
    free = _unpinned_layout(problem)
    counts = sorted({problem.node.gpus_per_node, *_NODE_SIZES})
    options = [(count, gpu) for count in counts for gpu in _larger_gpus(problem.node)]
    for count, gpu in options:
        if count < problem.node.gpus_per_node:
            continue
        asked = Hardware(gpu=gpu.name, gpus_per_node=count, nodes=hardware.nodes)
        node = resolve_hardware(asked)[0]
        sized = _first_fit(_posed(free, node=node))
        if sized is not None:
            return Nearest(
                change=f"{node.num_gpus} x {gpu.name} instead of {problem.node.gpu.name}",
                config=emitted(free, sized.config, sized.effective),
                hardware=asked,
                slo=None,
                detail=f"{gpu.memory_gib:.0f} GiB per GPU hold the model and the cache.",
            )
    return None


def _larger_gpus(node: Node) -> Iterator[Gpu]:
    candidates = [
        gpu
        for gpu in all_gpus()
        if gpu.vendor == node.gpu.vendor
        and gpu.gpu_class == "datacenter"
        and gpu.memory_gib > node.total_memory_gib
    ]
    yield from sorted(candidates, key=lambda gpu: (gpu.memory_gib, gpu.name))


def _with_smaller_weights(problem: Problem) -> Nearest | None:
    """Return whether an 8-bit, else a 4-bit checkpoint of the model would fit."""
    if problem.spec.quantization is not None:
        return None
    for name, format_ in _SMALLER:
        spec = msgspec.structs.replace(
            problem.spec,
            weights_bytes=None,
            quantization=Quantization(
                method="compressed-tensors",
                scheme=format_.scheme,
                bits=format_.bits,
                group_size=format_.group_size,
                formats=(format_,),
            ),
        )
        sized = _first_fit(msgspec.structs.replace(problem, spec=spec))
        if sized is not None:
            return Nearest(
                change=f"a checkpoint of the model with {name} weights",
                config=emitted(problem, sized.config, sized.effective),
                hardware=None,
                slo=None,
                detail=f"With {name} weights {sized.topology.label} fits on the same GPUs.",
            )
    return None


def _unpinned_layout(problem: Problem) -> Problem:
    """Return the problem without pinned parallel sizes, for hardware that differs."""
    loose = dict.fromkeys(_LAYOUT)
    pin = msgspec.structs.replace(problem.pin, **loose)
    constraints = msgspec.structs.replace(
        problem.constraints, pin=pin, max_tensor_parallel_size=None
    )
    base = msgspec.structs.replace(problem.base, **loose)
    return msgspec.structs.replace(problem, constraints=constraints, base=base)


def _posed(
    problem: Problem, *, node: Node | None = None, constraints: Constraints | None = None
) -> Problem:
    """Return the problem with another node or other constraints."""
    node = node or problem.node
    return msgspec.structs.replace(
        problem,
        node=node,
        constraints=constraints or problem.constraints,
        utilization=choose_utilization(node, version=problem.version, posture=problem.posture),
    )


def _first_fit(problem: Problem) -> Sized | None:
    sized, _ = size_all(problem)
    return min(
        sized,
        key=lambda s: (s.topology.gpus, s.topology.pipeline_parallel_size, s.topology),
        default=None,
    )
