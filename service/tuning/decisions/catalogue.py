"""The rules of choice by id, so that every id in an answer can be looked up."""

import msgspec


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One rule by which a recommendation chooses, or a note that it makes."""

    id: str
    title: str
    settings: tuple[str, ...]


def _choice(rule_id: str, title: str, *settings: str) -> Choice:
    return Choice(id=rule_id, title=title, settings=settings)


CHOICES = (
    _choice("CHO001", "Tensor parallelism that serves the objective best", "tensor_parallel_size"),
    _choice("CHO002", "Pipeline stages only to make a model fit", "pipeline_parallel_size"),
    _choice("CHO003", "Data-parallel ranks where a cache would be copied", "data_parallel_size"),
    _choice("CHO004", "Whole experts only where they must or pay", "enable_expert_parallel"),
    _choice("CHO010", "Share of the GPU by posture and neighbours", "gpu_memory_utilization"),
    _choice("CHO011", "Length from the load, not from the model", "max_model_len"),
    _choice("CHO012", "An 8-bit cache only for a gain", "kv_cache_dtype"),
    _choice("CHO013", "Blocks are left to the backend", "block_size"),
    _choice("CHO014", "Number format that the GPU computes", "dtype"),
    _choice("CHO020", "Admission where the cache or the limits end", "max_num_seqs"),
    _choice("CHO021", "Token budget by simulation", "max_num_batched_tokens"),
    _choice("CHO022", "Chunked prefill stays on", "enable_chunked_prefill"),
    _choice("CHO023", "Prefix caching stays on", "enable_prefix_caching"),
    _choice("CHO030", "Graphs stay on", "enforce_eager"),
    _choice("CHO031", "The checkpoint says how it is quantised", "quantization"),
    _choice("CHO032", "Swap space has no effect", "swap_space"),
    _choice("CHO033", "Weights stay on the GPU", "cpu_offload_gb"),
    _choice("CHO034", "Speculation only with a drafter that is named", "speculative_config"),
    _choice("CHO035", "Async scheduling is left to vLLM", "async_scheduling"),
    _choice(
        "CHO040", "Adapters as the request names them", "enable_lora", "max_loras", "max_lora_rank"
    ),
    _choice("CHO041", "Pinned settings stay"),
    _choice("CHO050", "Part of the configuration that comes closest"),
    _choice("GUI001", "256 sequences would overflow the cache", "max_num_seqs"),
    _choice("GUI002", "Larger blocks gain nothing for long texts", "block_size"),
    _choice("GUI003", "Eager mode does not shorten the first token", "enforce_eager"),
    _choice("GUI004", "Swap space cushions nothing", "swap_space"),
    _choice("GUI005", "Naming the quantisation gains nothing", "quantization"),
)


def find_choice(rule_id: str) -> Choice | None:
    """Return the rule of choice with this id, None when there is none."""
    return next((choice for choice in CHOICES if choice.id == rule_id), None)
