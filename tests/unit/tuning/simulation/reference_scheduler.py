"""vLLM's scheduler, one step after the other in plain Python: what the fast kernel must equal.

Written from the rules, not from the kernel: a list of running requests, a deque of waiting ones,
and no step is ever skipped.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from service.tuning.simulation.limits import SchedulerLimits

TIE_S = 1e-9


@dataclass
class Sequence:
    """One request on its way through the engine."""

    number: int
    prompt: int
    steps: int
    sent: float = 0.0
    reached: float = 0.0
    scheduled: float = -1.0
    first: float = -1.0
    end: float = -1.0
    computed: int = 0
    generated: int = 0
    held: int = 0
    shared: int = 0
    preemptions: int = 0
    lost_blocks: int = 0
    lost_tokens: int = 0
    lost_at: int = 0
    given: int = 0

    @property
    def known(self) -> int:
        """Tokens of the prompt and the answer so far."""
        return self.prompt + self.generated

    @property
    def decodes(self) -> bool:
        """Whether its next step is one of decoding."""
        return self.generated > 0 and self.known - self.computed <= 1


@dataclass
class Engine:
    """The state between two steps."""

    step_seconds: Callable[..., float]
    limits: SchedulerLimits
    groups: list[tuple[int, int, int]]
    front: tuple[float, float, float, float, float]
    window: int
    free: int = 0
    handed_out: int = 0
    prefix_blocks: int = 0
    prefix_ready: bool = False
    now: float = 0.0
    taken_in: float = 0.0
    running: list[Sequence] = field(default_factory=list)
    waiting: deque[Sequence] = field(default_factory=deque)
    on_the_way: deque[Sequence] = field(default_factory=deque)
    used_plus_free: set[int] = field(default_factory=set)
    steps: int = 0

    def blocks(self, tokens: int, given: int) -> int:
        """Return the blocks of a sequence of these tokens, the last of them given in this step."""
        total = 0
        for block, cap, extra, reach in self.groups:
            held = min(tokens, cap) if cap else tokens
            held = min(held, reach - 1 + given) if reach else held
            total += extra + (math.ceil(held / block) if block else 0)
        return total

    def send(self, request: Sequence, at: float, *, is_first: bool = True) -> None:
        """Send a request to the front end."""
        latency, per_token, service, service_per_token, again_share = self.front
        share = 1.0 if is_first else again_share
        request.sent = at
        ready = max(self.taken_in, at + latency + per_token * request.prompt)
        self.taken_in = ready + share * (service + service_per_token * request.prompt)
        request.reached = self.taken_in
        self.on_the_way.append(request)


def run(
    *,
    step_seconds: Callable[..., float],
    limits: SchedulerLimits,
    groups: list[tuple[int, int, int]],
    front: tuple[float, float, float, float, float],
    window: int | None,
    prompts: list[int],
    outputs: list[int],
    arrivals: list[float],
    concurrency: int,
) -> tuple[Engine, list[Sequence] | None]:
    """Return the engine and its finished requests."""
    everyone = [
        Sequence(n, int(p), int(o)) for n, (p, o) in enumerate(zip(prompts, outputs, strict=True))
    ]
    engine = Engine(step_seconds, limits, groups, front, window, free=limits.num_blocks)
    unsent = deque(everyone)
    for _ in range(min(concurrency, len(everyone)) if concurrency else len(everyone)):
        request = unsent.popleft()
        engine.send(request, 0.0 if concurrency else arrivals[request.number])
    while any(r.end < 0 for r in everyone):
        while engine.on_the_way and engine.on_the_way[0].reached <= engine.now + TIE_S:
            engine.waiting.append(engine.on_the_way.popleft())
        if not engine.running and not engine.waiting:
            engine.now = max(engine.now, engine.on_the_way[0].reached)
            continue
        ended = step(engine)
        if ended is None:
            return engine, None
        if concurrency:
            for _ in range(min(ended, len(unsent))):
                engine.send(unsent.popleft(), engine.now, is_first=False)
    return engine, everyone


def step(engine: Engine) -> int | None:
    """Run one step; return how many requests ended, None when nothing can ever run."""
    limits = engine.limits
    budget, preempted = serve_running(engine)
    if not preempted:
        admit(engine, budget)
    batch = batch_of(engine)
    if batch is None:
        return 0 if preempted else None
    seconds = engine.step_seconds(batch)
    end = engine.now + seconds
    engine.steps += 1
    held = sum(r.held for r in engine.running) + engine.prefix_blocks
    engine.used_plus_free.add(held + engine.free)
    ended = finish_step(engine, end)
    engine.now = end
    assert limits.num_blocks >= engine.free >= 0
    return ended


def serve_running(engine: Engine) -> tuple[int, bool]:
    limits = engine.limits
    budget, preempted, index = limits.token_budget, False, 0
    for request in engine.running:
        request.given = 0
    while index < len(engine.running):
        request = engine.running[index]
        count = 1 if request.decodes else request.known - request.computed
        if limits.longest_chunk and not request.decodes:
            count = min(count, limits.longest_chunk)
        count = min(count, budget)
        if count <= 0:
            index += 1
            continue
        while True:
            wanted = engine.blocks(request.computed + count, count)
            need = wanted - request.shared - request.held
            if need <= engine.free or len(engine.running) <= index:
                break
            evict(engine, engine.running.pop())
            preempted = True
        if len(engine.running) <= index:
            break
        take(engine, request, need)
        request.given = count
        budget -= count
        index += 1
    return budget, preempted


def take(engine: Engine, request: Sequence, need: int) -> None:
    engine.free -= need
    request.held += need
    engine.handed_out += max(need, 0)


def evict(engine: Engine, victim: Sequence) -> None:
    victim.lost_blocks, victim.lost_tokens = victim.held, victim.computed
    victim.lost_at = engine.handed_out + engine.free
    engine.free += victim.held
    victim.held = victim.shared = victim.computed = victim.given = 0
    victim.preemptions += 1
    engine.waiting.appendleft(victim)


def admit(engine: Engine, budget: int) -> None:
    limits, idle = engine.limits, not engine.running
    while engine.waiting and budget > 0 and len(engine.running) < limits.max_num_seqs:
        request = engine.waiting[0]
        is_fresh = request.preemptions == 0 and request.reached >= engine.now - TIE_S
        if is_fresh and not idle:
            break
        hit, shared = found_in_cache(engine, request)
        count = request.known - hit
        if limits.longest_chunk:
            count = min(count, limits.longest_chunk)
        if limits.chunked_prefill:
            count = min(count, budget)
        elif count > budget and engine.running:
            break
        whole = request.known if limits.admits_whole else hit + count
        kept = limits.watermark_blocks if engine.running else 0
        given = whole if limits.admits_whole else count
        if engine.blocks(whole, given) - shared + kept > engine.free:
            break
        engine.waiting.popleft()
        request.shared = shared
        taken = max(engine.blocks(hit + count, count) - shared, 0)
        engine.free -= taken
        engine.handed_out += taken
        request.held, request.computed, request.given = taken, hit, count
        request.lost_blocks = request.lost_tokens = 0
        if request.scheduled < 0:
            request.scheduled = engine.now
        engine.running.append(request)
        budget -= count


def found_in_cache(engine: Engine, request: Sequence) -> tuple[int, int]:
    limits = engine.limits
    prefix = limits.shared_prefix_tokens
    hit = min(prefix, request.known - 1) if engine.prefix_ready else 0
    shared = engine.prefix_blocks if hit >= prefix else 0
    left = request.lost_blocks - max(engine.handed_out - request.lost_at, 0)
    if limits.caches_prefixes and left > 0:
        block = math.lcm(*(b for b, cap, *_ in engine.groups if b and not cap), 1)
        room = math.ceil(request.lost_tokens / block) * block
        found = room * left // request.lost_blocks // block * block
        whole = request.lost_tokens // block * block
        hit = max(hit, min(found, whole, (request.known - 1) // block * block))
    return hit, shared


def batch_of(engine: Engine) -> tuple[float, ...] | None:
    decodes = prefill = rows = 0
    context = window_context = pairs = window_pairs = 0.0
    for request in engine.running:
        if request.given == 0:
            continue
        if request.decodes:
            decodes += 1
            rows += 1
            context += request.known
            window_context += min(request.known, engine.window)
            continue
        places = range(request.computed, request.computed + request.given)
        prefill += request.given
        pairs += sum(place + 1 for place in places)
        window_pairs += sum(min(place + 1, engine.window) for place in places)
        rows += request.computed + request.given >= request.known
    if decodes + prefill == 0:
        return None
    return decodes, prefill, rows, context, window_context, pairs, window_pairs


def finish_step(engine: Engine, end: float) -> int:
    ended = 0
    for request in list(engine.running):
        if request.given == 0:
            continue
        if not request.decodes:
            request.computed += request.given
            if request.computed < request.known:
                continue
        if request.generated == 0:
            request.first = end
            share_prefix(engine, request)
        request.generated += 1
        request.computed = request.known - 1
        if request.generated >= request.steps:
            request.end = end
            engine.free += request.held
            request.held = request.shared = 0
            engine.running.remove(request)
            ended += 1
    return ended


def share_prefix(engine: Engine, request: Sequence) -> None:
    tokens = engine.limits.shared_prefix_tokens
    if tokens == 0 or engine.prefix_ready:
        return
    engine.prefix_ready = True
    engine.prefix_blocks = sum(tokens // b for b, cap, *_ in engine.groups if b and not cap)
    request.held -= engine.prefix_blocks
    request.shared = engine.prefix_blocks
