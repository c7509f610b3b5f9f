"""Where the reasons come from."""

from api_schemas.explanation import Source
from service.tuning.rules.base import thread, vllm

__all__ = [
    "GUIDE_LENGTH",
    "GUIDE_SEQUENCES",
    "GUIDE_SHARE",
    "GUIDE_TENSOR",
    "GUIDE_TOKENS",
    "MEMORY_MODEL",
    "PERFORMANCE_MODEL",
    "REQUEST",
    "thread",
    "vllm",
]

GUIDE_SHARE = Source(title="Tuning guides 1 to 3", where="gpu_memory_utilization")
GUIDE_LENGTH = Source(title="Tuning guide 3", where="max_model_len: business peak x 1.2")
GUIDE_SEQUENCES = Source(title="Tuning guide 3", where="max_num_seqs: 0.7 to 0.8 of the limit")
GUIDE_TOKENS = Source(title="Tuning guides 1 to 3", where="max_num_batched_tokens")
GUIDE_TENSOR = Source(title="Tuning guide 3", where="tensor_parallel_size")
MEMORY_MODEL = Source(title="Setpoint's memory model", where="benchmarks: memory accuracy")
PERFORMANCE_MODEL = Source(
    title="Setpoint's step-time model and scheduler simulation",
    where="benchmarks: performance accuracy",
)
REQUEST = Source(title="The request", where="what the caller stated")
