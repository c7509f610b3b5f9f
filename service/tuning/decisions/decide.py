"""All decisions of a recommendation, in the order in which a person sets things up."""

from api_schemas.explanation import Decision
from service.tuning.decisions import batching, extras, layout, left, memory
from service.tuning.decisions.case import Case

_IN_ORDER = (
    layout.tensor_parallel,
    layout.pipeline_parallel,
    layout.data_parallel,
    layout.expert_parallel,
    memory.memory_share,
    memory.length,
    batching.sequences,
    batching.batched_tokens,
    memory.cache_format,
    memory.dtype,
    left.quantization,
    batching.chunked_prefill,
    batching.prefix_caching,
    left.eager,
    memory.block_size,
    left.speculation,
    left.async_scheduling,
    left.offload,
    left.swap,
)


def decide(case: Case) -> list[Decision]:
    """Return the reason for every emitted setting and for the well-known ones left alone."""
    found = [made for make in _IN_ORDER if (made := make(case)) is not None]
    found += extras.adapters(case)
    explained = {made.setting for made in found}
    return [*found, *extras.pinned(case, explained=explained)]
