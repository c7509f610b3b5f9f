"""Steady load without simulating: a fixed point of decoding requests, step time and arrivals.

About ten damped rounds settle it. It is as good as the simulation where lengths vary and several
waves run, and worse for equal lengths, single bursts and preemption; the search ranks with it and
simulates the few best.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.latency.price import NUM_BATCH, VERIFY, WINDOW
from service.tuning.simulation.limits import SchedulerLimits

Floats = NDArray[np.float64]
_ROUNDS = 12
_MAX_LOAD = 0.999
_SPREAD_GROWTH = 0.55
"""Share of its output that a running request holds on average when lengths vary."""
_EQUAL_GROWTH = 0.75
_TAIL_SHARE = 0.1
"""Of a request's time, what the tail of a run with varied lengths adds."""


class LoadShape(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one engine in mean figures."""

    prompt_tokens: float
    output_tokens: float
    has_spread: bool
    concurrency: float | None = None
    """Clients of a closed loop, or requests of a batch; None with a rate."""
    requests: float = 0.0
    """Requests of the run."""
    requests_per_s: float | None = None
    shared_prefix_tokens: int = 0


class SteadyState(msgspec.Struct, frozen=True, kw_only=True):
    """What the closed form predicts for one engine; seconds."""

    ttft_mean_s: float
    ttft_p50_s: float
    tpot_s: float
    requests_per_s: float
    run_requests_per_s: float
    """Over a whole run, ramp and tail included."""
    running: float
    waiting: float
    plain_step_s: float
    mixed_step_s: float
    is_saturated: bool


class _Prices:
    """Step times of one configuration at mean batches."""

    def __init__(self, price: Floats) -> None:
        from service.tuning.simulation.kernel import step_seconds  # noqa: PLC0415 - compiler

        self._price = price
        self._batch = np.zeros(NUM_BATCH)
        self._step_seconds = step_seconds
        self._window = float(price[WINDOW])
        self.tokens_per_sequence = float(price[VERIFY])

    def step(
        self, decodes: float, prefill: float, prompts: float, *, prompt: float, output: float
    ) -> float:
        """Return the time of a step of decoding sequences and `prefill` tokens of `prompts`."""
        batch = self._batch
        length = prompt + output / 2
        chunk = prefill / prompts if prompts > 0 else 0.0
        batch[0], batch[1], batch[2] = decodes, prefill, decodes + prompts
        batch[3], batch[4] = decodes * length, decodes * min(length, self._window)
        batch[5] = prefill * max(prompt, chunk) / 2
        batch[6] = prefill * min(prompt / 2, self._window)
        return self._step_seconds(self._price, batch)


def steady_state(price: Floats, *, load: LoadShape, limits: SchedulerLimits) -> SteadyState:
    """Return the mean behaviour of one engine under this load."""
    prices = _Prices(price)
    if load.concurrency is None:
        return _open_loop(prices, load=load, limits=limits)
    return _closed_loop(prices, load=load, limits=limits)


class _Point(msgspec.Struct):
    """One state of the fixed point."""

    decodes: float
    tau: float = 0.0
    plain: float = 0.0
    mixed: float = 0.0
    ttft: float = 0.0
    decode_time: float = 0.0


def runnable(load: LoadShape, limits: SchedulerLimits) -> float:
    """Return how many sequences run at once: sequence limit and KV blocks."""
    growth = _SPREAD_GROWTH if load.has_spread else _EQUAL_GROWTH
    held = load.prompt_tokens + growth * load.output_tokens - limits.shared_prefix_tokens
    fit = limits.sequences_that_fit(max(held, 1.0))
    return max(1.0, min(float(limits.max_num_seqs), fit))


def _evaluate(
    prices: _Prices, decodes: float, *, load: LoadShape, limits: SchedulerLimits, most: float
) -> _Point:
    prompt, output = _computed_prompt(load, limits), load.output_tokens
    length = load.prompt_tokens
    gaps = max(output - 1, 1e-9)
    budget = float(limits.token_budget)
    cohort = 1.0 if load.has_spread else min(max(math.floor(budget / prompt), 1), most)
    room = max(budget - decodes * prices.tokens_per_sequence, 0.05 * budget)
    finishing = decodes / gaps
    load_tokens = finishing * prompt
    rho = min(load_tokens / room, _MAX_LOAD)
    chunks = max(1.0, math.ceil(prompt / room))
    share = 1 - math.exp(-finishing * chunks)
    if not load.has_spread:
        share = min(1.0, finishing * chunks / cohort)
    share = min(max(share, load_tokens / room), 1.0)
    tokens = min(load_tokens / max(share, 1e-12), room)
    prompts = max(tokens / prompt, 1 / chunks)
    tokens = max(tokens, min(prompt / chunks, room))
    plain = prices.step(decodes, 0.0, 0.0, prompt=length, output=output)
    mixed = prices.step(decodes, tokens, prompts, prompt=length, output=output)
    tau = (1 - share) * plain + share * mixed
    queue = rho * chunks / (2 * (1 - rho)) if load.has_spread else 0.0
    wait = tau if load.has_spread else plain
    ttft = (wait if decodes > 1 else 0.0) + (chunks + min(queue, most * chunks)) * mixed
    return _Point(
        decodes=decodes,
        tau=tau,
        plain=plain,
        mixed=mixed,
        ttft=ttft,
        decode_time=(output - 1) * tau,
    )


def _closed_loop(prices: _Prices, *, load: LoadShape, limits: SchedulerLimits) -> SteadyState:
    clients = float(load.concurrency or 1.0)
    most = min(clients, runnable(load, limits))
    saturation = limits.token_budget / (
        prices.tokens_per_sequence
        + _computed_prompt(load, limits) / max(load.output_tokens - 1, 1e-9)
    )
    point = _evaluate(prices, 0.9 * most, load=load, limits=limits, most=most)
    for _ in range(_ROUNDS):
        total = point.decode_time + point.ttft
        busy = most * point.decode_time / total if total > 0 else 0.0
        decodes = (point.decodes + max(min(busy, saturation), 1e-3)) / 2
        point = _evaluate(prices, decodes, load=load, limits=limits, most=most)
    is_limited = clients > most * 1.001 or point.decodes > 0.98 * saturation
    rate = _completion_rate(point, most)
    ttft = max(point.ttft, clients / rate - point.decode_time) if is_limited else point.ttft
    return _with_start(prices, point, load=load, limits=limits, rate=rate, ttft=ttft, most=most)


def _completion_rate(point: _Point, most: float) -> float:
    if point.decode_time <= 0:
        return most / max(point.ttft, 1e-9)
    return max(point.decodes, 1e-9) / point.decode_time


def _with_start(
    prices: _Prices,
    point: _Point,
    *,
    load: LoadShape,
    limits: SchedulerLimits,
    rate: float,
    ttft: float,
    most: float,
) -> SteadyState:
    """Return the figures of a whole run: all clients send their first request at once."""
    clients = float(load.concurrency or 1.0)
    requests = max(load.requests, clients)
    prompt = _computed_prompt(load, limits)
    burst_tokens = min(float(limits.token_budget), clients * prompt)
    burst = prices.step(
        most / 2,
        burst_tokens,
        max(burst_tokens / prompt, 1.0),
        prompt=load.prompt_tokens,
        output=load.output_tokens,
    )
    fills = most * prompt / limits.token_budget
    first = burst * (1.0 if fills <= 1 else (fills + 1) / 2)
    tpot = point.tau
    if requests <= clients:
        late = max(requests - most, 0.0)
        mean = first + late**2 / (2 * requests * rate)
        median = mean
        if late <= 0:
            plain = prices.step(
                most, 0.0, 0.0, prompt=load.prompt_tokens, output=load.output_tokens
            )
            tpot = plain + burst * fills / (2 * max(load.output_tokens - 1, 1.0))
            rate = most / max(first + tpot * (load.output_tokens - 1), 1e-9)
    else:
        share = clients / requests
        mean = share * max(first, ttft / 2 if clients > most else 0.0) + (1 - share) * ttft
        median = ttft
    tail = _TAIL_SHARE * point.decode_time if load.has_spread else 0.5 * ttft
    duration = requests / rate + (tail if requests > clients else 0.0)
    return SteadyState(
        ttft_mean_s=mean,
        ttft_p50_s=median,
        tpot_s=tpot,
        requests_per_s=rate,
        run_requests_per_s=requests / duration,
        running=min(most, rate * (point.decode_time + point.ttft)),
        waiting=max(clients - most, 0.0),
        plain_step_s=point.plain,
        mixed_step_s=point.mixed,
        is_saturated=clients > most * 1.001,
    )


def _open_loop(prices: _Prices, *, load: LoadShape, limits: SchedulerLimits) -> SteadyState:
    rate = float(load.requests_per_s or 1e-9)
    most = runnable(load, limits)
    limited = msgspec.structs.replace(load, concurrency=most, requests=1e9, requests_per_s=None)
    capacity = _closed_loop(prices, load=limited, limits=limits)
    if rate >= capacity.requests_per_s:
        return _overloaded(capacity, load=load, rate=rate)
    decodes = 0.0
    point = _evaluate(prices, 1.0, load=load, limits=limits, most=most)
    for _ in range(2 * _ROUNDS):
        decodes = (decodes + min(rate * point.decode_time, most)) / 2
        point = _evaluate(prices, max(decodes, 1e-3), load=load, limits=limits, most=most)
    running = min(rate * (point.decode_time + point.ttft), most)
    wait = _slot_wait(running, most, service=point.decode_time + point.ttft)
    return SteadyState(
        ttft_mean_s=point.ttft + wait,
        ttft_p50_s=point.ttft,
        tpot_s=point.tau,
        requests_per_s=rate,
        run_requests_per_s=rate,
        running=running,
        waiting=rate * wait,
        plain_step_s=point.plain,
        mixed_step_s=point.mixed,
        is_saturated=False,
    )


def _slot_wait(running: float, most: float, *, service: float) -> float:
    """Return the mean wait for a free sequence slot: Sakasegawa's approximation of M/M/c."""
    load = min(running / most, _MAX_LOAD)
    exponent = math.sqrt(2 * (most + 1)) - 1
    return float(service / most * load**exponent / (1 - load))


def _overloaded(capacity: SteadyState, *, load: LoadShape, rate: float) -> SteadyState:
    """Return a run at a rate above capacity: the queue grows until the last arrival."""
    requests = max(load.requests, 1.0)
    growth = requests * (1 / capacity.requests_per_s - 1 / rate) / 2
    return msgspec.structs.replace(
        capacity,
        ttft_mean_s=capacity.ttft_p50_s + growth,
        ttft_p50_s=capacity.ttft_p50_s + growth,
        run_requests_per_s=capacity.requests_per_s,
        waiting=growth * capacity.requests_per_s,
        is_saturated=True,
    )


def _computed_prompt(load: LoadShape, limits: SchedulerLimits) -> float:
    """Return the prompt tokens that are computed, the cached prefix left out."""
    cached = min(limits.shared_prefix_tokens, load.prompt_tokens - 1)
    return max(load.prompt_tokens - max(cached, 0.0), 1.0)
