"""The requests of one simulated run: lengths and arrivals, drawn with a seed.

A closed loop follows the protocol of public benchmarks (InferenceX, `vllm bench serve`): all
clients send at once, each finished request is replaced, and the run ends after ten waves. Means
therefore contain the first burst, as measured means do. Of large loops fewer waves are simulated
and the first one is weighed down to its share of ten.
"""

import math
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from api_schemas.workload import (
    Arrivals,
    BatchArrivals,
    ClosedLoop,
    FixedLength,
    GammaArrivals,
    Lengths,
    PoissonArrivals,
    Trace,
    UniformLength,
    Workload,
)
from service.tuning.errors import InvalidRequest
from service.tuning.lengths import sample_tokens

WAVES = 10.0
"""Requests per client in a closed loop: InferenceX, `--num-prompts` = 10 x concurrency."""
MIN_WAVES = 4.0
"""Four waves predict ten within 0.9 % (TPOT) and 0.4 % (TTFT) once the first is weighed down."""
ENOUGH_REQUESTS = 640
OPEN_LOOP_REQUESTS = 1000
"""Length of an open-loop run: the default of `vllm bench serve` and GuideLLM."""
MIN_REQUESTS = 20
MAX_REQUESTS = 20_000
"""Of a larger batch or trace the first requests are simulated."""

_KEPT = 64
_LARGEST_KEPT_BYTES = 1 << 15
"""Draws that are remembered: of so many loads, none described in more bytes."""

OUTPUT_JITTER = 0.1
OUTPUT_JITTER_TOKENS = 10.0
"""Half width of the spread that answers of one nominal length have in a closed loop: relative,
and at most in tokens.

Answers of exactly equal length keep all clients in step, so that every prompt waits for all
others. Two tokens of difference are enough to part them, and most measured loops are parted
(stops before the limit, retries, ramps); `vllm bench serve --ignore-eos` with fixed lengths is
not, and its TTFT is about three times as long: see `IN_STEP_WAVES`."""

IN_STEP_WAVES = 15.0
"""Requests per client up to which a run of stated size stays in step where every answer is as
long as every other, as `vllm bench serve` asks of random prompts: loops of 3 to 12 requests per
client on six machines did, and of twenty about half of the requests did."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one run of one replica, in order of arrival."""

    prompts: Ints
    outputs: Ints
    arrivals: Floats
    """Seconds; zeros in a closed loop, whose arrivals follow from what finishes."""
    concurrency: int
    """Clients of a closed loop; 0 when arrivals are given."""
    weights: Floats
    """Weight of each request in means and percentiles; they add up to one."""
    waves: float
    """Requests per client that the run stands for (closed loop), else 0."""
    offered_requests_per_s: float | None
    """Rate of an open loop."""
    is_endless: bool = False
    """Whether the run stands for a service that goes on, of which only the steady part counts."""


def draw_traffic(
    workload: Workload,
    *,
    replicas: int = 1,
    seed: int = 0,
    waves: float = WAVES,
    jitter_tokens: float = OUTPUT_JITTER_TOKENS,
) -> Traffic:
    """Return the requests that one of `replicas` equal engines sees.

    `waves` are the requests per client of a closed loop that does not state its requests;
    `jitter_tokens` is the most that answers of one nominal length differ in a closed loop.
    """
    arrivals = workload.arrivals
    if arrivals is None:
        raise InvalidRequest("the workload names no arrivals", pointer="/workload/arrivals")
    if isinstance(arrivals, Trace):
        return _from_trace(arrivals, replicas=replicas)
    prompts, outputs = workload.prompt_tokens, workload.output_tokens
    if prompts is None or outputs is None:
        raise InvalidRequest("the workload names no lengths", pointer="/workload/prompt_tokens")
    if isinstance(arrivals, PoissonArrivals | GammaArrivals):
        return _open_loop(arrivals, prompts, outputs, replicas=replicas, seed=seed)
    generator = np.random.default_rng(seed)
    match arrivals:
        case ClosedLoop():
            clients, number = loop_size(arrivals, replicas=replicas, waves=waves)
            is_run = arrivals.num_requests is not None and number <= IN_STEP_WAVES * clients
            natural = _natural(outputs, 0.0 if is_run else jitter_tokens)
            return _closed_loop(prompts, natural, clients, whole=number, generator=generator)
        case BatchArrivals():
            return _batch(arrivals, prompts, outputs, replicas, generator)
        case _:
            raise InvalidRequest(
                "users must be converted to a rate first", pointer="/workload/arrivals"
            )


def loop_size(arrivals: ClosedLoop, *, replicas: int, waves: float = WAVES) -> tuple[int, int]:
    """Return the clients and all the requests of one replica in a closed loop."""
    clients = max(1, math.ceil(arrivals.max_concurrency / replicas))
    if arrivals.num_requests is not None:
        stated = max(1, math.ceil(arrivals.num_requests / replicas))
        return min(clients, stated), stated
    number = max(round(waves * clients), clients)
    return clients, max(number, MIN_REQUESTS) if waves >= WAVES else number


def _closed_loop(
    prompts: Lengths,
    outputs: Lengths,
    clients: int,
    *,
    whole: int,
    generator: np.random.Generator,
) -> Traffic:
    number = min(whole, max(ENOUGH_REQUESTS, math.ceil(MIN_WAVES * clients)))
    clients = min(clients, number)
    weights = np.full(number, 1.0 / number)
    if number < whole:
        weights[:clients] = 1.0 / whole
        weights[clients:] = (1.0 - clients / whole) / (number - clients)
    return Traffic(
        prompts=sample_tokens(prompts, number, generator),
        outputs=sample_tokens(outputs, number, generator),
        arrivals=np.zeros(number),
        concurrency=clients,
        weights=weights,
        waves=whole / clients,
        offered_requests_per_s=None,
    )


def _natural(outputs: Lengths, jitter_tokens: float) -> Lengths:
    """Return one nominal length as lengths that differ a little; others as they are."""
    if isinstance(outputs, FixedLength):
        outputs = outputs.tokens
    if not isinstance(outputs, int):
        return outputs
    spread = round(min(OUTPUT_JITTER * outputs, jitter_tokens))
    return UniformLength(low=max(outputs - spread, 1), high=max(outputs + spread, 1))


def _batch(
    arrivals: BatchArrivals,
    prompts: Lengths,
    outputs: Lengths,
    replicas: int,
    generator: np.random.Generator,
) -> Traffic:
    number = min(max(1, math.ceil(arrivals.num_requests / replicas)), MAX_REQUESTS)
    return Traffic(
        prompts=sample_tokens(prompts, number, generator),
        outputs=sample_tokens(outputs, number, generator),
        arrivals=np.zeros(number),
        concurrency=0,
        weights=np.full(number, 1.0 / number),
        waves=0.0,
        offered_requests_per_s=None,
    )


def _open_loop(
    arrivals: PoissonArrivals | GammaArrivals,
    prompts: Lengths,
    outputs: Lengths,
    *,
    replicas: int,
    seed: int,
) -> Traffic:
    rate = arrivals.requests_per_s / replicas
    shape = arrivals.burstiness if isinstance(arrivals, GammaArrivals) else 1.0
    stated = arrivals.num_requests
    number = OPEN_LOOP_REQUESTS if stated is None else math.ceil(stated / replicas)
    number = min(number, MAX_REQUESTS)
    content = msgspec.msgpack.encode((prompts, outputs, shape, seed, number))
    draw = _drawn if len(content) <= _LARGEST_KEPT_BYTES else _drawn.__wrapped__
    drawn = draw(content)
    gaps = drawn.gaps * (1.0 / (shape * rate))
    gaps *= number / rate / gaps.sum()
    return Traffic(
        prompts=drawn.prompts.copy(),
        outputs=drawn.outputs.copy(),
        arrivals=gaps.cumsum() - gaps[0],
        concurrency=0,
        weights=np.full(number, 1.0 / number),
        waves=0.0,
        offered_requests_per_s=rate,
        is_endless=stated is None,
    )


class _Draws(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths, and gaps between arrivals of mean `shape`, before a rate is known."""

    gaps: Floats
    prompts: Ints
    outputs: Ints


@lru_cache(maxsize=_KEPT)
def _drawn(content: bytes) -> _Draws:
    """Return the draws of an open loop; a search asks for the same ones at many rates."""
    prompts, outputs, shape, seed, number = msgspec.msgpack.decode(
        content, type=tuple[Lengths, Lengths, float, int, int]
    )
    generator = np.random.default_rng(seed)
    return _Draws(
        gaps=generator.standard_gamma(shape, number),
        prompts=sample_tokens(prompts, number, generator),
        outputs=sample_tokens(outputs, number, generator),
    )


def _from_trace(trace: Trace, *, replicas: int) -> Traffic:
    lengths = {len(trace.at_s), len(trace.prompt_tokens), len(trace.output_tokens)}
    if len(lengths) > 1:
        raise InvalidRequest(
            "the lists of a trace must be equally long", pointer="/workload/arrivals"
        )
    order = np.argsort(np.asarray(trace.at_s), kind="stable")[::replicas][:MAX_REQUESTS]
    at = np.asarray(trace.at_s, dtype=np.float64)[order]
    number = len(order)
    span = float(at[-1] - at[0])
    return Traffic(
        prompts=np.asarray(trace.prompt_tokens, dtype=np.int64)[order],
        outputs=np.asarray(trace.output_tokens, dtype=np.int64)[order],
        arrivals=at - at[0],
        concurrency=0,
        weights=np.full(number, 1.0 / number),
        waves=0.0,
        offered_requests_per_s=number / span if span > 0 else None,
    )


def mean_arrival_rate(arrivals: Arrivals) -> float | None:
    """Return the requests per second of an open loop; None for loops and batches."""
    match arrivals:
        case PoissonArrivals() | GammaArrivals():
            return float(arrivals.requests_per_s)
        case Trace():
            span = max(arrivals.at_s) - min(arrivals.at_s)
            return len(arrivals.at_s) / span if span > 0 else None
        case _:
            return None
