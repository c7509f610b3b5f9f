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


Starts = Callable[[Problem, Sized], bool]
"""Whether vLLM starts with a layout that fits: no rule refuses it."""


def nearest_that_fits(
    problem: Problem, hardware: Hardware, closest: Misfit, *, starts: Starts
) -> Nearest | None:
    """Return the first change that makes the model fit, from the cheapest kind to the dearest.

    A shorter request, an 8-bit cache, the usual share of the memory, more GPUs of the kind, a
    larger GPU, a free layout; those with what is pinned before any without it. None when none of
    them helps.
    """
    ways: tuple[Callable[[], Nearest | None], ...] = (
        lambda: _shorter(problem, closest),
        lambda: _with_fp8_cache(problem),
        lambda: _with_usual_share(problem, starts=starts),
        lambda: _with_more_gpus(problem, hardware, starts=starts),
        lambda: without_pinned_layout(problem),
        lambda: _with_larger_gpu(problem, hardware, starts=starts),
        lambda: _shorter(problem, closest, at_least_tokens=1),
    )
    found = next((found for way in ways if (found := way()) is not None), None)
    smaller = _with_smaller_weights(problem, starts=starts)
    if found is None:
        return smaller
    if smaller is None:
        return found
    return msgspec.structs.replace(found, detail=f"{found.detail} Or: {smaller.change}.")


def without_pinned_layout(problem: Problem) -> Nearest | None:
    """Return the layout that fits when pinned parallel sizes are let go, one if that is enough."""
    named = [name for name in _LAYOUT if getattr(problem.pin, name) is not None]
    options = [(f"the pinned {name}", _without(problem, name)) for name in named]
    options.append(("the pinned or limited layout", _unpinned_layout(problem)))
    for dropped, free in options:
        sized = _first_fit(free) if free != problem else None
        if sized is not None:
            return Nearest(
                change=f"{sized.topology.label}, without {dropped}",
                config=emitted(free, sized.config, sized.effective),
                hardware=None,
                slo=None,
                detail="vLLM accepts this layout, and the model fits with it.",
                constraints=free.constraints,
            )
    return None


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
        constraints=msgspec.structs.replace(
            problem.constraints, pin=msgspec.structs.replace(problem.pin, max_model_len=longest)
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
        constraints=allowed,
    )


def _with_usual_share(problem: Problem, *, starts: Starts) -> Nearest | None:
    """Return that a pinned share of the memory is let go, where the usual one is enough."""
    if problem.pin.gpu_memory_utilization is None:
        return None
    pin = msgspec.structs.replace(problem.pin, gpu_memory_utilization=None)
    constraints = msgspec.structs.replace(problem.constraints, pin=pin)
    base = msgspec.structs.replace(problem.base, gpu_memory_utilization=None)
    free = msgspec.structs.replace(problem, constraints=constraints, base=base)
    sized = _first_fit(free)
    if sized is None or not starts(free, sized):
        return None
    return Nearest(
        change=f"without the pinned gpu_memory_utilization {problem.pin.gpu_memory_utilization:g}",
        config=emitted(free, sized.config, sized.effective),
        hardware=None,
        slo=None,
        detail="The usual share of these GPUs holds the model and the cache.",
        constraints=constraints,
    )


def _with_more_gpus(problem: Problem, hardware: Hardware, *, starts: Starts) -> Nearest | None:
    for posed in _pinned_first(problem):
        for count in _GPU_COUNTS:
            if count <= problem.node.num_gpus:
                continue
            node, asked = _grown(hardware, count)
            bigger = _posed(posed, node=node)
            sized = _first_fit(bigger)
            if sized is None or not starts(bigger, sized):
                continue
            return _on_hardware(
                problem,
                bigger,
                sized,
                asked=asked,
                change=f"{count} x {node.gpu.name} instead of {problem.node.num_gpus}",
                detail=f"As {sized.topology.label} the model and the cache fit.",
            )
    return None


def _pinned_first(problem: Problem) -> tuple[Problem, ...]:
    """Return the problem with its pinned layout, then without; once when nothing is pinned."""
    free = _unpinned_layout(problem)
    return (problem,) if free == problem else (problem, free)


def _on_hardware(
    problem: Problem, posed: Problem, sized: Sized, *, asked: Hardware, change: str, detail: str
) -> Nearest:
    """Return the change of hardware, and of the pins where they do not hold there."""
    is_free = posed.constraints != problem.constraints
    if is_free:
        change = f"{change}, without the pinned or limited layout"
    return Nearest(
        change=change,
        config=emitted(posed, sized.config, sized.effective),
        hardware=asked,
        slo=None,
        detail=detail,
        constraints=posed.constraints if is_free else None,
    )


def _grown(hardware: Hardware, count: int) -> tuple[Node, Hardware]:
    """Return as many GPUs of the kind, in nodes of at most eight."""
    per_node = min(count, _WIDEST_NODE)
    asked = msgspec.structs.replace(hardware, gpus_per_node=per_node, nodes=count // per_node)
    return resolve_hardware(asked)[0], asked


def _with_larger_gpu(problem: Problem, hardware: Hardware, *, starts: Starts) -> Nearest | None:
    for posed in _pinned_first(problem):
        for asked in larger_hardware(problem.node, hardware):
            node = resolve_hardware(asked)[0]
            other = _posed(posed, node=node)
            sized = _first_fit(other)
            if sized is None or not starts(other, sized):
                continue
            return _on_hardware(
                problem,
                other,
                sized,
                asked=asked,
                change=f"{node.num_gpus} x {node.gpu.name} instead of {problem.node.gpu.name}",
                detail=f"{node.gpu.memory_gib:.0f} GiB per GPU hold the model and the cache.",
            )
    return None


def larger_hardware(node: Node, hardware: Hardware) -> Iterator[Hardware]:
    """Yield the same number of larger GPUs, then more of them, smallest memory first."""
    for count in sorted({node.gpus_per_node, *_NODE_SIZES}):
        if count < node.gpus_per_node:
            continue
        for gpu in _larger_gpus(node):
            yield Hardware(gpu=gpu.name, gpus_per_node=count, nodes=hardware.nodes)


def _larger_gpus(node: Node) -> Iterator[Gpu]:
    candidates = [
        gpu
        for gpu in all_gpus()
        if gpu.vendor == node.gpu.vendor
        and gpu.gpu_class == "datacenter"
        and gpu.memory_gib > node.total_memory_gib
    ]
    yield from sorted(candidates, key=lambda gpu: (gpu.memory_gib, gpu.name))


def _with_smaller_weights(problem: Problem, *, starts: Starts) -> Nearest | None:
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
        smaller = msgspec.structs.replace(problem, spec=spec)
        sized = _first_fit(smaller)
        if sized is not None and starts(smaller, sized):
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
    free = _without(problem, *_LAYOUT)
    constraints = msgspec.structs.replace(free.constraints, max_tensor_parallel_size=None)
    return msgspec.structs.replace(free, constraints=constraints)


def _without(problem: Problem, *names: str) -> Problem:
    """Return the problem without these pins."""
    if problem.constraints.pin is None:
        return problem
    loose = dict.fromkeys(names)
    pin = msgspec.structs.replace(problem.pin, **loose)
    return msgspec.structs.replace(
        problem,
        constraints=msgspec.structs.replace(problem.constraints, pin=pin),
        base=msgspec.structs.replace(problem.base, **loose),
    )


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
