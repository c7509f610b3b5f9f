"""What vLLM's start-up log says of memory, in the words of every release from 0.6 to 0.33.

Sources: the log statements of vLLM's source releases (`v1/worker/gpu_worker.py`,
`v1/core/kv_cache_utils.py`, `worker/worker.py`, `worker/cpu_worker.py`), and recorded logs.
"""

import re
from typing import Literal

from api_schemas.validation import StartupFigures

FailureReason = Literal[
    "does_not_fit",
    "free_memory",
    "oom_load",
    "oom_profiling",
    "oom_graphs",
    "oom_sampler",
    "bad_flag",
    "unsupported",
    "port_in_use",
    "model_not_found",
    "unknown",
]

_NUMBER = r"(-?[\d,]+(?:\.\d+)?)"
_WEIGHTS = re.compile(rf"Model loading took {_NUMBER} GiB")
_WEIGHTS_OLD = re.compile(rf"[Ll]oading model weights took {_NUMBER} GB")
_KV_GIB = re.compile(rf"Available KV cache memory: {_NUMBER} GiB")
_KV_GIB_CPU = re.compile(rf"(?:Explicitly|Auto) set \({_NUMBER}/{_NUMBER}\) GiB for KV cache")
_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d,.]+)x")
_BLOCKS = re.compile(r"INFO.*?# (?:GPU|CUDA|CPU|cuda|cpu) blocks: (\d+)")
"""The first pool of the line: on a GPU the second one is the swap space."""
_GRAPHS = re.compile(rf"Graph capturing finished in \d+ secs?, took {_NUMBER} GiB")
_GRAPH_POOL = re.compile(rf"CUDA graph pool memory: {_NUMBER} GiB \(actual\)")
_V0_BLOCK_TOKENS = 16
FIGURES = (
    *(_WEIGHTS, _WEIGHTS_OLD, _KV_GIB, _KV_GIB_CPU, _TOKENS, _CONCURRENCY),
    *(_BLOCKS, _GRAPHS, _GRAPH_POOL),
)
"""All that figures are read from."""

_FAILURES: tuple[tuple[FailureReason, re.Pattern[str]], ...] = (
    ("bad_flag", re.compile(r"error: (?:unrecognized arguments|argument |ambiguous option)")),
    ("free_memory", re.compile(r"ValueError: Free memory on device")),
    (
        "does_not_fit",
        re.compile(
            r"ValueError: (?:To serve at least one request with the model"
            r"|No available memory for the cache blocks"
            r"|The model's max seq len .* is larger than the maximum number of tokens)"
        ),
    ),
    ("port_in_use", re.compile(r"(?:Errno 98|address already in use)", re.IGNORECASE)),
    (
        "model_not_found",
        re.compile(
            r"(?:LocalEntryNotFoundError|RepositoryNotFoundError|is not a local folder and is not"
            r"|couldn't connect to .* to load|Can't load the configuration)"
        ),
    ),
    (
        "unsupported",
        re.compile(
            r"(?:is not supported for the current GPU|are not supported for now"
            r"|NotImplementedError|must be divisible by|ValidationError|not valid for this"
            r" configuration|is only supported on|is not divisible by)"
        ),
    ),
)
_OUT_OF_MEMORY = re.compile(r"(?:CUDA out of memory|OutOfMemoryError|HIP out of memory)")
_OOM_PLACES: tuple[tuple[FailureReason, re.Pattern[str]], ...] = (
    ("oom_sampler", re.compile(r"(?:warming up sampler|_dummy_sampler_run|dummy requests)")),
    ("oom_graphs", re.compile(r"(?:capture_model|[Cc]apturing|cuda_?graph|CUDA graph)")),
    ("oom_profiling", re.compile(r"(?:profile_run|determine_available_memory|_dummy_run)")),
)


def parse_startup_log(text: str) -> StartupFigures:
    """Return what the log says; the smallest figure over ranks, since that rank limits."""
    tokens = _smallest(_TOKENS, text)
    if tokens is None and (blocks := _smallest(_BLOCKS, text)) is not None:
        tokens = blocks * _V0_BLOCK_TOKENS
    return StartupFigures(
        weights_gib=_first(text, _WEIGHTS, _WEIGHTS_OLD),
        kv_cache_gib=_smallest(_KV_GIB, text) or _smallest(_KV_GIB_CPU, text),
        kv_cache_tokens=None if tokens is None else int(tokens),
        max_concurrency=_smallest(_CONCURRENCY, text),
        cuda_graphs_gib=_first(text, _GRAPH_POOL, _GRAPHS),
    )


def classify_failure(text: str) -> tuple[FailureReason, str]:
    """Return why a start failed, and the line that says so (the last line is rarely the cause)."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if _OUT_OF_MEMORY.search(line):
            return _place_of_oom(lines[: number + 1]), line.strip()
        for reason, pattern in _FAILURES:
            if pattern.search(line):
                return reason, line.strip()
    errors = [line for line in lines if re.search(r"\b\w*(?:Error|Exception)\b: ", line)]
    return "unknown", (errors or lines or [""])[0].strip()


def _place_of_oom(lines: list[str]) -> FailureReason:
    """Return what vLLM was doing: the nearest line before the error that names a phase."""
    for line in reversed(lines):
        for reason, pattern in _OOM_PLACES:
            if pattern.search(line):
                return reason
    return "oom_load"


def _smallest(pattern: re.Pattern[str], text: str) -> float | None:
    values = [float(match[1].replace(",", "")) for match in pattern.finditer(text)]
    return min(values, default=None)


def _first(text: str, *patterns: re.Pattern[str]) -> float | None:
    for pattern in patterns:
        if match := pattern.search(text):
            return float(match[1].replace(",", ""))
    return None
