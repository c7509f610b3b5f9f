"""Steady load without simulating: a fixed point of decoding requests, step time and arrivals.

About ten damped rounds settle it. It is as good as the simulation where lengths vary and several
waves run, and worse for equal lengths, single bursts and preemption; the search ranks with it and
simulates the few best.
"""

import math
from functools import cache, lru_cache
from types import ModuleType

import msgspec
import numpy as np
from numpy.typing import NDArray

from service.tuning.latency.mean_field import MAX_LOAD, NUM_POINT
from service.tuning.latency.price import NUM_BATCH
from service.tuning.simulation.limits import SchedulerLimits

Floats = NDArray[np.float64]
_SPREAD_GROWTH = 0.55
"""Share of its output that a running request holds on average when lengths vary."""
_EQUAL_GROWTH = 0.75
_TAIL_SHARE = 0.1
"""Of a request's time, what the tail of a run with varied lengths adds."""


_NO_RATE = 1e-9


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


class _Point(msgspec.Struct, frozen=True):
    """One state of the fixed point, in the order of `POINT_FIELDS`; seconds."""

    decodes: float
    tau: float
    plain: float
    mixed: float
    ttft: float
    decode_time: float


def _point(values: Floats) -> _Point:
    return _Point(*values.tolist())


@cache
def _compiled() -> ModuleType:
    from service.tuning.simulation import kernel  # noqa: PLC0415 - loads the compiler

    return kernel


class _Engine:
    """One configuration under one load, in the arrays that compiled code works on."""

    def __init__(self, price: Floats, *, load: LoadShape, limits: SchedulerLimits) -> None:
        self._kernel = _compiled()
        self._price = price
        self._batch = np.empty(NUM_BATCH)
        self._point = np.empty(NUM_POINT)
        self._open: tuple[float, Floats] | None = None
        self.load, self.limits = load, limits
        self.budget = float(limits.token_budget)
        self.computed_prompt = _computed_prompt(load, limits)

    @property
    def content(self) -> bytes:
        """The prices, to look results up by."""
        return self._price.tobytes()

    def settle_closed(self, most: float) -> tuple[_Point, float]:
        """Return the fixed point of a closed loop, and the decodes that saturate it."""
        point = np.empty(NUM_POINT)
        array = self._array(most)
        saturation: float = self._kernel.settle_closed(self._price, self._batch, array, point)
        return _point(point), saturation

    def settle_open(self, most: float, *, rate: float) -> _Point:
        """Return the fixed point of an open loop that is served at its rate."""
        if self._open is None or self._open[0] != most:
            self._open = most, self._array(most)
        self._kernel.settle_open(self._price, self._batch, self._open[1], rate, self._point)
        return _point(self._point)

    def step(self, decodes: float, prefill: float, prompts: float) -> float:
        """Return the time of a step of decoding sequences and `prefill` tokens of `prompts`."""
        array = self._array(0.0)
        seconds: float = self._kernel.mean_step(
            self._price, self._batch, array, decodes, prefill, prompts
        )
        return seconds

    def _array(self, most: float) -> Floats:
        load = self.load
        spread = float(load.has_spread)
        return np.array(
            [
                load.prompt_tokens,
                self.computed_prompt,
                load.output_tokens,
                spread,
                self.budget,
                most,
            ]
        )


def steady_state(price: Floats, *, load: LoadShape, limits: SchedulerLimits) -> SteadyState:
    """Return the mean behaviour of one engine under this load."""
    if load.concurrency is not None:
        return _closed_loop(_Engine(price, load=load, limits=limits))
    return OpenLoop(price, load=load, limits=limits).at(float(load.requests_per_s or 0.0))


def runnable(load: LoadShape, limits: SchedulerLimits) -> float:
    """Return how many sequences run at once: sequence limit and KV blocks."""
    growth = _SPREAD_GROWTH if load.has_spread else _EQUAL_GROWTH
    held = load.prompt_tokens + growth * load.output_tokens - limits.shared_prefix_tokens
    fit = limits.sequences_that_fit(max(held, 1.0))
    return max(1.0, min(float(limits.max_num_seqs), fit))


def in_step_ttft_s(price: Floats, *, load: LoadShape, limits: SchedulerLimits) -> float:
    """Return the median wait for the first token when all clients of a loop ask at once, seconds.

    Clients whose answers are equally long stay together: each prompt waits for its turn among all.
    """
    engine = _Engine(price, load=load, limits=limits)
    tokens = min(float(load.concurrency or 1.0), runnable(load, limits)) * engine.computed_prompt
    chunk = min(tokens, engine.budget)
    step_s = engine.step(0.0, chunk, max(chunk / engine.computed_prompt, 1.0))
    return math.ceil(tokens / chunk / 2) * step_s


def _closed_loop(engine: _Engine) -> SteadyState:
    load, limits = engine.load, engine.limits
    clients = float(load.concurrency or 1.0)
    most = min(clients, runnable(load, limits))
    point, saturation = engine.settle_closed(most)
    is_limited = clients > most * 1.001 or point.decodes > 0.98 * saturation
    rate = _completion_rate(point, most)
    ttft = max(point.ttft, clients / rate - point.decode_time) if is_limited else point.ttft
    return _with_start(engine, point, rate=rate, ttft=ttft, most=most)


def _completion_rate(point: _Point, most: float) -> float:
    if point.decode_time <= 0:
        return most / max(point.ttft, 1e-9)
    return max(point.decodes, 1e-9) / point.decode_time


def _with_start(
    engine: _Engine, point: _Point, *, rate: float, ttft: float, most: float
) -> SteadyState:
    """Return the figures of a whole run: all clients send their first request at once."""
    load, prompt = engine.load, engine.computed_prompt
    clients = float(load.concurrency or 1.0)
    requests = max(load.requests, clients)
    burst_tokens = min(engine.budget, clients * prompt)
    burst = engine.step(most / 2, burst_tokens, max(burst_tokens / prompt, 1.0))
    fills = most * prompt / engine.budget
    first = burst * (1.0 if fills <= 1 else (fills + 1) / 2)
    tpot = point.tau
    if requests <= clients:
        late = max(requests - most, 0.0)
        mean = first + late**2 / (2 * requests * rate)
        median = mean
        if late <= 0:
            plain = engine.step(most, 0.0, 0.0)
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


class OpenLoop:
    """One engine under a load at one rate after another; the rest is settled once."""

    def __init__(self, price: Floats, *, load: LoadShape, limits: SchedulerLimits) -> None:
        self._engine = _Engine(price, load=load, limits=limits)
        self._most = runnable(load, limits)
        limited = msgspec.structs.replace(
            load, concurrency=self._most, requests=1e9, requests_per_s=None
        )
        self._capacity = _capacity(self._engine.content, limited, limits)

    def at(self, rate: float) -> SteadyState:
        """Return the mean behaviour at this many requests/s."""
        rate = rate or _NO_RATE
        capacity, most = self._capacity, self._most
        if rate >= capacity.requests_per_s:
            return _overloaded(capacity, load=self._engine.load, rate=rate)
        point = self._engine.settle_open(most, rate=rate)
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


@lru_cache(maxsize=1024)
def _capacity(price: bytes, load: LoadShape, limits: SchedulerLimits) -> SteadyState:
    """Return the closed loop of all places, which a search asks for at one rate after another."""
    return _closed_loop(_Engine(np.frombuffer(price).copy(), load=load, limits=limits))


def _slot_wait(running: float, most: float, *, service: float) -> float:
    """Return the mean wait for a free sequence slot: Sakasegawa's approximation of M/M/c."""
    load = min(running / most, MAX_LOAD)
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
