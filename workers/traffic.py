"""The load of one replica as its benchmark client plays it."""

import math
from pathlib import Path

import msgspec
import numpy as np

from api_schemas.workload import (
    Arrivals,
    FixedLength,
    Lengths,
    Trace,
    UniformLength,
    Users,
    Workload,
)
from service.tuning.lengths import mean_tokens, sample_tokens
from service.tuning.search.share import arrivals_of_one

_CHUNK_TOKENS = 512
"""Tokens that one id of the dataset file stands for, when no prefix is shared."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request: when it is sent, its lengths, and what its prompt shares with others."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    chunks: tuple[int, ...] | None = None
    """Ids of the prompt's parts; equal ids are equal text. None: nothing but the prefix."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of the benchmark client offers."""

    arrivals: Arrivals
    prompt_tokens: Lengths | None
    output_tokens: Lengths | None
    shared_prefix_tokens: int
    num_requests: int
    seed: int
    requests: tuple[Request, ...] | None = None
    """The very requests, when lengths cannot be left to the client."""
    chunk_tokens: int = _CHUNK_TOKENS


def share_of(arrivals: Arrivals | None, *, replicas: int) -> Arrivals:
    """Return what one of several replicas is offered.

    Raises:
        ValueError: The load is not stated, or in people instead of requests.
    """
    if arrivals is None or isinstance(arrivals, Users):
        raise ValueError("the workload states no arrivals that can be played")
    return arrivals_of_one(arrivals, copies=replicas)


def make_load(
    workload: Workload, arrivals: Arrivals, *, num_requests: int, seed: int, max_model_len: int
) -> Load:
    """Return the load with its requests drawn, where the client cannot draw them itself.

    Fixed and uniform lengths are left to the client's random data; others are drawn here with the
    seed, and no request is longer than the model length allows.
    """
    prefix = workload.shared_prefix_tokens or 0
    load = Load(
        arrivals=arrivals,
        prompt_tokens=workload.prompt_tokens,
        output_tokens=workload.output_tokens,
        shared_prefix_tokens=prefix,
        num_requests=num_requests,
        seed=seed,
    )
    if isinstance(arrivals, Trace):
        return _replay(load, arrivals)
    if _client_can_draw(load, max_model_len):
        return load
    return _drawn(load, max_model_len=max_model_len)


def mean_request_tokens(workload: Workload) -> float:
    """Return the mean of prompt and output together."""
    if isinstance(workload.arrivals, Trace):
        both = workload.arrivals.prompt_tokens + workload.arrivals.output_tokens
        return sum(both) / len(workload.arrivals.at_s)
    return mean_tokens(workload.prompt_tokens or 1) + mean_tokens(workload.output_tokens or 1)


def fixed_tokens(lengths: Lengths | None) -> int | None:
    """Return the one length of all requests, None when they differ."""
    if isinstance(lengths, FixedLength):
        return lengths.tokens
    return lengths if isinstance(lengths, int) else None


def range_ratio(lengths: Lengths | None) -> tuple[int, float] | None:
    """Return the middle of fixed or uniform lengths and how far they reach, relative to it."""
    fixed = fixed_tokens(lengths)
    if fixed is not None:
        return fixed, 0.0
    if not isinstance(lengths, UniformLength):
        return None
    low, high = min(lengths.low, lengths.high), max(lengths.low, lengths.high)
    middle = (low + high) / 2
    return (round(middle), (high - low) / (high + low)) if middle == round(middle) else None


def write_requests(load: Load, path: Path) -> None:
    """Write the requests as vLLM's benchmark reads them (its timed trace, JSON lines)."""
    requests = load.requests or ()
    path.write_bytes(b"\n".join(_line(load, n, item) for n, item in enumerate(requests)) + b"\n")


def chunk_tokens(load: Load) -> int:
    """Return the tokens that one id of the file stands for."""
    return load.shared_prefix_tokens or load.chunk_tokens


def _line(load: Load, number: int, request: Request) -> bytes:
    chunk = chunk_tokens(load)
    parts = math.ceil(request.prompt_tokens / chunk)
    # Ids of another seed never meet, so that no trial finds the cache of an earlier one.
    first = (load.seed * 1_000_003 + number + 1) * 4096
    ids = list(request.chunks or (first + part for part in range(parts)))
    if load.shared_prefix_tokens and request.chunks is None:
        ids = [load.seed, *ids[1:]]
    row = {
        "timestamp": request.at_s,
        "input_length": request.prompt_tokens,
        "output_length": request.output_tokens,
        "hash_ids": ids,
    }
    return msgspec.json.encode(row)


def _client_can_draw(load: Load, max_model_len: int) -> bool:
    prompt, output = range_ratio(load.prompt_tokens), range_ratio(load.output_tokens)
    if prompt is None or output is None or (load.shared_prefix_tokens and prompt[1]):
        return False
    longest = sum(math.ceil(middle * (1 + ratio)) for middle, ratio in (prompt, output))
    return longest <= max_model_len and load.shared_prefix_tokens < prompt[0]


def _drawn(load: Load, *, max_model_len: int) -> Load:
    generator = np.random.default_rng(load.seed)
    count = load.num_requests
    outputs = sample_tokens(load.output_tokens or 1, count, generator)
    prompts = sample_tokens(load.prompt_tokens or 1, count, generator)
    outputs = np.minimum(outputs, max(max_model_len - 1, 1))
    prompts = np.maximum(np.minimum(prompts, max_model_len - outputs), 1)
    pairs = zip(prompts.tolist(), outputs.tolist(), strict=True)
    requests = tuple(Request(at_s=0.0, prompt_tokens=p, output_tokens=o) for p, o in pairs)
    return msgspec.structs.replace(load, requests=requests)


def _replay(load: Load, trace: Trace) -> Load:
    rows = sorted(zip(trace.at_s, trace.prompt_tokens, trace.output_tokens, strict=True))
    kept = rows[: load.num_requests]
    start = kept[0][0]
    requests = tuple(
        Request(at_s=at - start, prompt_tokens=prompt, output_tokens=output)
        for at, prompt, output in kept
    )
    return msgspec.structs.replace(load, requests=requests, num_requests=len(requests))
