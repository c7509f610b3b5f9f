"""What vLLM's start-up log says, release by release.

The lines are composed here from the words that each release prints; figures are arbitrary.
"""

import pytest

from workers.startup_log import classify_failure, parse_startup_log

_V1_TWO_LINES = """
INFO [gpu_model_runner.py:1] Model loading took 14.9888 GiB and 3.2 seconds
INFO [gpu_worker.py:1] Available KV cache memory: 51.08 GiB
INFO [kv_cache_utils.py:1] GPU KV cache size: 418,416 tokens
INFO [kv_cache_utils.py:1] Maximum concurrency for 8,192 tokens per request: 51.08x
INFO [gpu_model_runner.py:1] Graph capturing finished in 20 secs, took 0.55 GiB
"""
_ONE_LINE = """
(Worker_TP0 pid=1) INFO [gpu_model_runner.py:1] Model loading took 7.51 GiB memory and 3.2 seconds
(Worker_TP1 pid=2) INFO [gpu_model_runner.py:1] Model loading took 7.51 GiB memory and 3.3 seconds
(Worker_TP0 pid=1) INFO [gpu_worker.py:1] Available KV cache memory: 60.02 GiB
(Worker_TP1 pid=2) INFO [gpu_worker.py:1] Available KV cache memory: 59.87 GiB
(EngineCore pid=3) INFO [kv_cache_utils.py:1] GPU KV cache size: 980,912 tokens, Maximum \
concurrency for 8,192 tokens per request: 119.74x
(Worker_TP0 pid=1) INFO CUDA graph pool memory: 0.61 GiB (actual), 0.66 GiB (estimated), \
difference: 0.05 GiB (8.2%).
"""
_V0 = """
INFO model_runner.py:1] Loading model weights took 14.9595 GB
INFO distributed_gpu_executor.py:57] # GPU blocks: 27895, # CPU blocks: 2048
INFO distributed_gpu_executor.py:61] Maximum concurrency for 8192 tokens per request: 54.48x
"""
_CPU = """
(EngineCore pid=1) INFO [cpu_worker.py:1] Explicitly set (0.06/13.09) GiB for KV cache on node 0.
(EngineCore pid=1) INFO [kv_cache_utils.py:1] CPU KV cache size: 131,072 tokens, Maximum \
concurrency for 1,024 tokens per request: 128.00x
"""


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        (_V1_TWO_LINES, (14.9888, 51.08, 418_416, 51.08, 0.55)),
        (_ONE_LINE, (7.51, 59.87, 980_912, 119.74, 0.61)),
        (_V0, (14.9595, None, 27_895 * 16, 54.48, None)),
        (_CPU, (None, 0.06, 131_072, 128.0, None)),
        ("", (None, None, None, None, None)),
    ],
    ids=["V1 two lines", "one line, two ranks", "V0", "CPU", "silent"],
)
def test_figures_are_read_from_every_form(text: str, figures: tuple[float | None, ...]) -> None:
    """Weights, KV cache, tokens, concurrency and graphs; the rank with the least limits."""
    found = parse_startup_log(text)

    assert (
        found.weights_gib,
        found.kv_cache_gib,
        found.kv_cache_tokens,
        found.max_concurrency,
        found.cuda_graphs_gib,
    ) == figures


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("vllm: error: unrecognized arguments: --max-seqs", "bad_flag"),
        ("ValueError: Free memory on device cuda:0 (70/80 GiB) is less", "free_memory"),
        ("ValueError: To serve at least one request with the model's max seq len", "does_not_fit"),
        ("ValueError: No available memory for the cache blocks.", "does_not_fit"),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: cannot find", "model_not_found"),
        ("pydantic ValidationError: User-specified max_model_len", "unsupported"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "oom_load"),
        ("in profile_run\ntorch.OutOfMemoryError: CUDA out of memory.", "oom_profiling"),
        ("in capture_model\ntorch.OutOfMemoryError: CUDA out of memory.", "oom_graphs"),
        ("in _dummy_sampler_run\ntorch.OutOfMemoryError: x", "oom_sampler"),
        ("RuntimeError: something else", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_failed_start_is_classified(text: str, reason: str) -> None:
    """The line that tells the cause is found, whatever stands below it."""
    tail = "\nRuntimeError: Engine core initialization failed. See root cause above."

    assert classify_failure(text + tail if text else "")[0] == reason


def test_the_cause_is_the_line_that_says_so_not_the_last_one() -> None:
    """The last line only says that something above went wrong."""
    text = (
        "INFO starting\n"
        "(EngineCore pid=1) ERROR ValueError: To serve at least one request with the model's max\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )

    assert "To serve at least one request" in classify_failure(text)[1]
